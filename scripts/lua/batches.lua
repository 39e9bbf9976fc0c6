-- batches.lua: read only. Decided batches with their stored bodies and the present records of their winners: of the ids given, or
-- those that still have a queued winner and were decided before a moment, oldest first.
-- KEYS: meta, stock, records, batches, bodies, undelivered
-- ARGV: epoch, then 'ids', batch ids (MessagePack) | 'undelivered', decided_before_ms, limit
-- Replies:
--   {'ok', then for each batch: {batch id, decided_at_ms, bodies, then for each winner: id, packed record}}
--      bodies: one a line; '' once no winner is queued any more
--   {'lost', run_id, replid}
-- Bound: 32 ids, or the limit, of 128 winners each.

local META, STOCK, RECORDS, BATCHES, BODIES, UNDELIVERED = unpack(KEYS)
local EPOCH, MODE = ARGV[1], ARGV[2]
local DECIDED_AT, WINNERS = 1, 2  -- of a batch's record, see reserve.lua

--#include same_redis.lua
--#include same_stock.lua
--#include whole_batches.lua
--#include records.lua

local gone = lost_batches()
if gone then
  return gone
end

local function wanted()
  if MODE == 'ids' then
    return cmsgpack.unpack(ARGV[3])
  end
  return redis.call('ZRANGEBYSCORE', UNDELIVERED, '-inf', '(' .. ARGV[3], 'LIMIT', 0, ARGV[4])
end

local function described(id, packed)
  local batch = cmsgpack.unpack(packed)
  local entry = {id, batch[DECIDED_AT], redis.call('HGET', BODIES, id) or ''}
  for position, record in ipairs(packed_records(batch[WINNERS])) do
    entry[#entry + 1] = batch[WINNERS][position]
    entry[#entry + 1] = record
  end
  return entry
end

local reply = {'ok'}
for _, id in ipairs(wanted()) do
  local packed = redis.call('HGET', BATCHES, id)
  if packed then
    reply[#reply + 1] = described(id, packed)
  end
end
return reply
