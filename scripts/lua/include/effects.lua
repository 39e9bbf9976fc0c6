-- include/effects.lua: what SQL decided of a reservation, applied to its record: once, guarded by the record's state.
-- Needs STOCK, RECORDS, BUYERS, BODIES, PENDING, UNDELIVERED, and records.lua.

-- The batch is delivered once none of its winners is queued: its body goes, its small record stays for replays.
local function leave_queue(batch_id)
  if redis.call('HINCRBY', PENDING, batch_id, -1) <= 0 then
    redis.call('HDEL', PENDING, batch_id)
    redis.call('HDEL', BODIES, batch_id)
    redis.call('ZREM', UNDELIVERED, batch_id)
  end
end

local function write_record(id, record, state)
  record[STATE] = state
  redis.call('HSET', RECORDS, id, cmsgpack.pack(record))
end

local function keep(id, record)
  if record[STATE] ~= QUEUED then
    return false
  end
  write_record(id, record, ORDERED)
  redis.call('HINCRBY', STOCK, 'queued', -record[QUANTITY])
  redis.call('HINCRBY', STOCK, 'ordered', record[QUANTITY])
  leave_queue(record[BATCH])
  return true
end

local function free_allowance(id, record)
  local packed = redis.call('HGET', BUYERS, record[BUYER])
  if not packed then
    return
  end
  local buyer = cmsgpack.unpack(packed)
  buyer[1] = buyer[1] - record[QUANTITY]
  for at = #buyer, FIRST_ID, -1 do
    if buyer[at] == id then
      table.remove(buyer, at)
    end
  end
  if buyer[1] > 0 then
    redis.call('HSET', BUYERS, record[BUYER], cmsgpack.pack(buyer))
  else
    redis.call('HDEL', BUYERS, record[BUYER])
  end
  redis.call('HINCRBY', STOCK, 'buyers_units', -record[QUANTITY])
end

-- 'return': the units are for sale again. 'write_off': SQL never had them, so what the slot was granted falls with them.
local function give_back(id, record, effect)
  if record[STATE] == ENDED then
    return false
  end
  local was, quantity = record[STATE], record[QUANTITY]
  write_record(id, record, ENDED)
  redis.call('HINCRBY', STOCK, 'held', -quantity)
  redis.call('HINCRBY', STOCK, was == QUEUED and 'queued' or 'ordered', -quantity)
  if effect == 'write_off' then
    redis.call('HINCRBY', STOCK, 'granted', -quantity)
  else
    redis.call('HINCRBY', STOCK, 'available', quantity)
  end
  free_allowance(id, record)
  if was == QUEUED then
    leave_queue(record[BATCH])
  end
  return true
end

-- {'ok', then the ids changed}. `effects` is {id, effect} each; all records are read and understood before one is written.
local function apply(effects, on_unknown)
  local ids, records = {}, {}
  for position, pair in ipairs(effects) do
    ids[position] = pair[1]
  end
  for position, packed in ipairs(packed_records(ids)) do
    records[position] = packed and cmsgpack.unpack(packed)
  end
  local reply = {'ok'}
  for position, pair in ipairs(effects) do
    local id, effect, record = pair[1], pair[2], records[position]
    local act = not record and on_unknown or effect == 'keep' and keep or give_back
    if act(id, record, effect) then
      reply[#reply + 1] = id
    end
  end
  return reply
end
