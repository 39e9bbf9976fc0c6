-- confirm.lua: tell the slot what SQL decided of a batch's winners. `keep`: queued -> ordered, and nothing else; `return` and
-- `write_off` as in end.lua. A record that is not live, or not there, is left alone.
-- KEYS: meta, stock, records, buyers, bodies, pending, undelivered
-- ARGV: epoch, effects (MessagePack: {id, 'keep' | 'return' | 'write_off'} each)
-- Replies:
--   {'ok', then the ids changed now}
--   {'lost', run_id, replid}
-- Bound: 128 effects.

local META, STOCK, RECORDS, BUYERS, BODIES, PENDING, UNDELIVERED = unpack(KEYS)
local EPOCH, effects = ARGV[1], cmsgpack.unpack(ARGV[2])

--#include same_redis.lua
--#include same_stock.lua
--#include whole_slot.lua
--#include records.lua
--#include effects.lua

local function leave_alone()
  return false
end

return lost_slot() or apply(effects, leave_alone)
