-- resolve.lua: a check-back's atomic read or fence. A batch that is not recorded is fenced here: its deduction may be on its way, and
-- reserve.lua will meet the fence and change nothing.
-- KEYS: meta, stock, batches, bodies, undelivered, fences
-- ARGV: epoch, batch id
-- Replies:
--   {'record', then the winners' ids}
--   {'fenced'}: nothing was recorded; the fence is written, or was there
--   {'lost', run_id, replid}
-- Bound: 128 winners.

local META, STOCK, BATCHES, BODIES, UNDELIVERED, FENCES = unpack(KEYS)
local EPOCH, BATCH_ID = ARGV[1], ARGV[2]
local WINNERS = 2  -- of a batch's record, see reserve.lua

--#include same_redis.lua
--#include same_stock.lua
--#include whole_batches.lua

local gone = lost_batches()
if gone then
  return gone
end
local packed = redis.call('HGET', BATCHES, BATCH_ID)
if not packed then
  redis.call('SADD', FENCES, BATCH_ID)
  return {'fenced'}
end
local reply = {'record'}
for _, id in ipairs(cmsgpack.unpack(packed)[WINNERS]) do
  reply[#reply + 1] = id
end
return reply
