-- take.lua: one unit, if there is one.
-- KEYS: stock
-- Replies: 1, or 0: it is empty

if tonumber(redis.call('GET', KEYS[1]) or 0) < 1 then
  return 0
end
redis.call('DECR', KEYS[1])
return 1
