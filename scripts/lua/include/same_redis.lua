-- include/same_redis.lua: is this the Redis that the loader stamped for this epoch? (design §3.3)
-- Needs META and EPOCH. Two looks: what the loader wrote into the slot, and what the server says of itself now. A restart,
-- a failover, FLUSHALL, a slot move or a promoted replica fails one of them. Only a script that passed may conclude "no record".

local function server_ids()
  local info = redis.call('INFO', 'server', 'replication')
  return string.match(info, '\nrun_id:(%w+)'), string.match(info, '\nmaster_replid:(%w+)')
end

-- nil, or the reply {'lost', run_id, replid} with the ids found.
local function lost()
  local run_id, replid = server_ids()
  local stamp = redis.call('HMGET', META, 'epoch', 'run_id', 'replid')
  if stamp[1] == EPOCH and stamp[2] == run_id and stamp[3] == replid then
    return nil
  end
  return {'lost', run_id, replid}
end
