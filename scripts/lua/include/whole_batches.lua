-- include/whole_batches.lua: same_stock.lua for scripts that conclude from a missing batch. A slot with queued units whose batches
-- are gone, deleted by a hand, would let their messages be forgotten and their checks be rolled back.
-- Needs STOCK, BATCHES, BODIES, UNDELIVERED, and same_stock.lua.

local function lost_batches()
  local gone = lost_stock()
  if gone then
    return gone
  end
  local queued = tonumber(redis.call('HGET', STOCK, 'queued') or 0)
  if queued > 0 and redis.call('EXISTS', BATCHES, BODIES, UNDELIVERED) < 3 then
    return {'lost', server_ids()}
  end
  return nil
end
