-- count.lua: read only. Every term of the slot at one instant (I1: granted = available + held).
-- KEYS: meta, stock, records, buyers, batches, bodies, undelivered
-- ARGV: epoch
-- Replies:
--   {'ok', granted, available, held, queued, ordered, buyers_units, undelivered batches}
--   {'lost', run_id, replid}

local META, STOCK, RECORDS, BUYERS, BATCHES, BODIES, UNDELIVERED = unpack(KEYS)
local EPOCH = ARGV[1]

--#include same_redis.lua
--#include same_stock.lua
--#include whole_slot.lua
--#include whole_batches.lua

-- The leader looks through this script, so it looks at everything.
local gone = lost_slot() or lost_batches()
if gone then
  return gone
end
local reply = {'ok'}
local terms = redis.call('HMGET', STOCK, 'granted', 'available', 'held', 'queued', 'ordered', 'buyers_units')
for position = 1, #terms do
  reply[#reply + 1] = tonumber(terms[position] or 0)
end
reply[#reply + 1] = redis.call('ZCARD', UNDELIVERED)
return reply
