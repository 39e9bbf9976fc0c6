-- include/whole_slot.lua: same_stock.lua for scripts that know reservations. A slot that holds units but not its records or its
-- buyers' units, deleted by a hand, would forget who holds them.
-- Needs STOCK, RECORDS, BUYERS, and same_stock.lua.

local function lost_slot()
  local gone = lost_stock()
  if gone then
    return gone
  end
  local held = tonumber(redis.call('HGET', STOCK, 'held') or 0)
  if held > 0 and redis.call('EXISTS', RECORDS, BUYERS) < 2 then
    return {'lost', server_ids()}
  end
  return nil
end
