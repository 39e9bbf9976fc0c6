-- count.lua: read only. Every term of the slot at one instant (I1: granted = available + held).
-- KEYS: meta, stock, undelivered
-- ARGV: epoch
-- Replies:
--   {'ok', granted, available, held, queued, ordered, buyers_units, undelivered batches}
--   {'lost', run_id, replid}

local META, STOCK, UNDELIVERED = unpack(KEYS)
local EPOCH = ARGV[1]

--#include same_redis.lua
--#include same_stock.lua

local gone = lost_stock()
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
