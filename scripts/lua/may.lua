-- may.lua: which of these commands this connection's user may not call on a slot's keys. Reads and writes nothing.
-- KEYS: meta, stock
-- ARGV: epoch, commands (MessagePack: names)
-- Replies:
--   {'ok', then the names of those it may not call}. None on a server that cannot tell (before Redis 7).

local META, STOCK = unpack(KEYS)
local KEYLESS = {INFO = true, TIME = true}

local function may(name)
  if KEYLESS[name] then
    return redis.acl_check_cmd(name)
  end
  return redis.acl_check_cmd(name, META) and redis.acl_check_cmd(name, STOCK)
end

local reply = {'ok'}
if redis.acl_check_cmd then
  for _, name in ipairs(cmsgpack.unpack(ARGV[2])) do
    if not may(name) then
      reply[#reply + 1] = name
    end
  end
end
return reply
