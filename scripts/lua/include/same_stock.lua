-- include/same_stock.lua: same_redis.lua for scripts that count. Without its counters, deleted by a hand or evicted, a slot would
-- look sold out for ever, and its own sums would agree.
-- Needs STOCK, and same_redis.lua.

local function lost_stock()
  local gone = lost()
  if not gone and redis.call('EXISTS', STOCK) == 0 then
    return {'lost', server_ids()}
  end
  return gone
end
