-- release.lua: free a lock, if it is still the caller's.
-- KEYS: lock
-- ARGV: token
-- Replies: 1, or 0: somebody else has it, or nobody

if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0
