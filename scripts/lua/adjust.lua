-- adjust.lua: change what the slot was granted, once an adjustment id. A decrease takes available units only.
-- A refusal is recorded too and replayed: of two workers on one decrease, both hear the same (docs/model).
-- KEYS: meta, stock, adjustments
-- ARGV: epoch, adjustment id, delta
-- Replies:
--   {'ok'}: it is in the slot, now or since an earlier call
--   {'too_few', available}: refused, now or in an earlier call; no unit moved
--   {'lost', run_id, replid}

local META, STOCK, ADJUSTMENTS = unpack(KEYS)
local EPOCH, ADJUSTMENT_ID, DELTA = ARGV[1], ARGV[2], tonumber(ARGV[3])

--#include same_redis.lua
--#include same_stock.lua

local gone = lost_stock()
if gone then
  return gone
end
local REFUSED = 'refused'
local available = tonumber(redis.call('HGET', STOCK, 'available') or 0)
local decided = redis.call('HGET', ADJUSTMENTS, ADJUSTMENT_ID)
if decided == REFUSED then
  return {'too_few', available}
end
if decided then
  return {'ok'}
end
if available + DELTA < 0 then
  redis.call('HSET', ADJUSTMENTS, ADJUSTMENT_ID, REFUSED)
  return {'too_few', available}
end
redis.call('HSET', ADJUSTMENTS, ADJUSTMENT_ID, DELTA)
redis.call('HINCRBY', STOCK, 'available', DELTA)
redis.call('HINCRBY', STOCK, 'granted', DELTA)
return {'ok'}
