-- adjust.lua: change what the slot was granted, once an adjustment id. A decrease takes available units only.
-- KEYS: meta, stock, adjustments
-- ARGV: epoch, adjustment id, delta
-- Replies:
--   {'ok'}: it is in the slot, now or since an earlier call
--   {'too_few', available}: nothing was written
--   {'lost', run_id, replid}

local META, STOCK, ADJUSTMENTS = unpack(KEYS)
local EPOCH, ADJUSTMENT_ID, DELTA = ARGV[1], ARGV[2], tonumber(ARGV[3])

--#include same_redis.lua
--#include same_stock.lua

local gone = lost_stock()
if gone then
  return gone
end
if redis.call('HEXISTS', ADJUSTMENTS, ADJUSTMENT_ID) == 1 then
  return {'ok'}
end
local available = tonumber(redis.call('HGET', STOCK, 'available') or 0)
if available + DELTA < 0 then
  return {'too_few', available}
end
redis.call('HSET', ADJUSTMENTS, ADJUSTMENT_ID, DELTA)
redis.call('HINCRBY', STOCK, 'available', DELTA)
redis.call('HINCRBY', STOCK, 'granted', DELTA)
return {'ok'}
