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

local gone = lost_slot()
if gone then
  return gone
end
-- The leader looks through this script: what is queued must still be deliverable, or SQL has to decide it.
local queued = tonumber(redis.call('HGET', STOCK, 'queued') or 0)
if queued > 0 and redis.call('EXISTS', BATCHES, BODIES, UNDELIVERED) < 3 then
  return {'lost', server_ids()}
end
local reply = {'ok'}
local terms = redis.call('HMGET', STOCK, 'granted', 'available', 'held', 'queued', 'ordered', 'buyers_units')
for position = 1, #terms do
  reply[#reply + 1] = tonumber(terms[position] or 0)
end
reply[#reply + 1] = redis.call('ZCARD', UNDELIVERED)
return reply
