-- end.lua: give a reservation's units and allowance back (`return`), or write them off: once, whoever calls and however often. An id
-- that the slot does not know is written `ended`, its buyer unknown: it can never win here any more.
-- KEYS: meta, stock, records, buyers, bodies, pending, undelivered
-- ARGV: epoch, offset_ms, effects (MessagePack: {id, 'return' | 'write_off' | 'keep'} each)
-- Replies:
--   {'ok', then the ids changed now}
--   {'lost', run_id, replid}
-- Bound: 128 effects.

local META, STOCK, RECORDS, BUYERS, BODIES, PENDING, UNDELIVERED = unpack(KEYS)
local EPOCH, OFFSET_MS, effects = ARGV[1], tonumber(ARGV[2]), cmsgpack.unpack(ARGV[3])

--#include same_redis.lua
--#include same_stock.lua
--#include whole_slot.lua
--#include clock.lua
--#include records.lua
--#include effects.lua

local function write_ended(id, _, effect)
  if effect == 'keep' then
    return false
  end
  redis.call('HSET', RECORDS, id, cmsgpack.pack({ENDED, 0, now_ms(), '', '', ''}))
  return true
end

return lost_slot() or apply(effects, write_ended)
