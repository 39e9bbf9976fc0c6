-- load.lua: fill a slot from the loader's one snapshot of SQL, and stamp it, last. Every call names the server that the loader found,
-- and writes nothing on another one or once this epoch is stamped. Each mode may be repeated.
-- KEYS: meta, stock, records, buyers
-- ARGV: epoch, run_id, replid, mode, then
--   'records', records (MessagePack: {id, record} each): decided ids, what live ones hold, whose they are
--   'buyers', holdings (MessagePack: {buyer, units} each)
--   'stock', available, held
--   'stamp', stamped_at_ms
-- Replies:
--   {'loaded'}
--   {'refused', run_id, replid, 0 | 1 stamped}: nothing was written. The very same stamp again is 'loaded'.
-- Bound: 500 records or buyers.

local META, STOCK, RECORDS, BUYERS = unpack(KEYS)
local EPOCH, RUN_ID, REPLID, MODE = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

--#include same_redis.lua
--#include records.lua

local function holding(who)
  local packed = redis.call('HGET', BUYERS, who)
  return packed and cmsgpack.unpack(packed) or {0}
end

local function load_record(id, record)
  redis.call('HSET', RECORDS, id, cmsgpack.pack(record))
  if record[STATE] == ENDED then
    return
  end
  redis.call('HINCRBY', STOCK, record[STATE] == QUEUED and 'queued' or 'ordered', record[QUANTITY])
  local buyer = holding(record[BUYER])
  add_live_id(buyer, id)
  redis.call('HSET', BUYERS, record[BUYER], cmsgpack.pack(buyer))
end

local load = {}

function load.records()
  for _, pair in ipairs(cmsgpack.unpack(ARGV[5])) do
    if redis.call('HEXISTS', RECORDS, pair[1]) == 0 then
      load_record(pair[1], pair[2])
    end
  end
end

function load.buyers()
  for _, pair in ipairs(cmsgpack.unpack(ARGV[5])) do
    local who, units, buyer = pair[1], pair[2], holding(pair[1])
    redis.call('HINCRBY', STOCK, 'buyers_units', units - buyer[1])
    buyer[1] = units
    redis.call('HSET', BUYERS, who, cmsgpack.pack(buyer))
  end
end

function load.stock()
  local available, held = tonumber(ARGV[5]), tonumber(ARGV[6])
  redis.call('HSET', STOCK, 'available', available, 'held', held, 'granted', available + held)
end

function load.stamp()
  redis.call('HSET', META, 'epoch', EPOCH, 'run_id', RUN_ID, 'replid', REPLID, 'stamped_at_ms', ARGV[5])
end

local function stamped_so()
  local stamp = redis.call('HMGET', META, 'epoch', 'run_id', 'replid', 'stamped_at_ms')
  return MODE == 'stamp' and stamp[1] == EPOCH and stamp[2] == RUN_ID and stamp[3] == REPLID and stamp[4] == ARGV[5]
end

local run_id, replid = server_ids()
local stamped = redis.call('EXISTS', META)
if run_id ~= RUN_ID or replid ~= REPLID then
  return {'refused', run_id, replid, stamped}
end
if stamped == 1 and not stamped_so() then
  return {'refused', run_id, replid, stamped}
end
if stamped == 0 then
  load[MODE]()
end
return {'loaded'}
