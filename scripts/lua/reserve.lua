-- reserve.lua: decide a batch, once: deduct for its winners and record what it decided. No client library may retry this call.
-- First: same Redis? Then: decided before (replay), fenced, and for each candidate in order, with running totals of stock, buyer and
-- id: known, past its deadline, limit, stock. Everything is decided before anything is written.
-- KEYS: meta, stock, records, buyers, batches, bodies, pending, undelivered, fences
-- ARGV: epoch, offset_ms, batch id, created_at_ms of the batch, limit per buyer, deadline_ms ('' unless the batch is of an older epoch),
--       candidates (MessagePack: {id, buyer, quantity, fingerprint} each), body of the batch message
-- Replies:
--   {'ok', 0 | 1 replayed, units held in the slot, then for each candidate: word, id, packed record}, the word being
--      'won' | 'known' with its record | 'limit_reached' with the buyer's newest live one | 'segment_empty' | 'past_deadline'
--   {'fenced', then for each candidate: 'known' with its record, or 'unknown'}
--   {'lost', run_id, replid}
-- With a deadline, what is refused is written `ended`: Redis knows of the rejection before SQL does. A consumer may split such a
-- batch and call again with other candidates of it: those are decided then, and join the batch's record and bodies.
-- Bound: 128 candidates.

local META, STOCK, RECORDS, BUYERS, BATCHES, BODIES, PENDING, UNDELIVERED, FENCES = unpack(KEYS)
local EPOCH, OFFSET_MS, BATCH_ID, BATCH_AT = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
local LIMIT, DEADLINE_MS, candidates, body = tonumber(ARGV[5]), tonumber(ARGV[6]), cmsgpack.unpack(ARGV[7]), ARGV[8]
local ID, WHO, UNITS, BODY_HASH = 1, 2, 3, 4
local DECIDED_AT, WINNERS, LOSERS = 1, 2, 3  -- a batch's record: losers are {id, word, id, word, ...}

--#include same_redis.lua
--#include same_stock.lua
--#include whole_slot.lua
--#include clock.lua
--#include records.lua
--#include refusals.lua

local gone = lost_slot()
if gone then
  return gone
end

local ids, buyer_ids = {}, {}
for position, candidate in ipairs(candidates) do
  ids[position], buyer_ids[position] = candidate[ID], candidate[WHO]
end
local record_of, holding_of = {}, {}
for position, packed in ipairs(packed_records(ids)) do
  record_of[ids[position]] = packed
end

local function fenced()
  local reply = {'fenced'}
  for _, id in ipairs(ids) do
    if record_of[id] then
      add_known(reply, id, record_of[id])
    else
      add_word(reply, 'unknown')
    end
  end
  return reply
end

local earlier = redis.call('HGET', BATCHES, BATCH_ID)
if not earlier and redis.call('SISMEMBER', FENCES, BATCH_ID) == 1 then
  return fenced()
end

if #buyer_ids > 0 then
  for position, packed in ipairs(redis.call('HMGET', BUYERS, unpack(buyer_ids))) do
    local who = buyer_ids[position]
    holding_of[who] = holding_of[who] or (packed and cmsgpack.unpack(packed)) or {0}
  end
end
local stock = redis.call('HMGET', STOCK, 'available', 'held')
local available, held, taken = tonumber(stock[1] or 0), tonumber(stock[2] or 0), 0
local now = now_ms()
local batch = earlier and cmsgpack.unpack(earlier) or {now, {}, {}}

-- The word of each id: first what this batch decided before.
local word_of = {}
for _, id in ipairs(batch[WINNERS]) do
  word_of[id] = 'won'
end
for at = 1, #batch[LOSERS], 2 do
  word_of[batch[LOSERS][at]] = batch[LOSERS][at + 1]
end

local function refusal(candidate)
  if DEADLINE_MS and now >= DEADLINE_MS then
    return 'past_deadline'
  end
  if holding_of[candidate[WHO]][1] + candidate[UNITS] > LIMIT then
    return 'limit_reached'
  end
  if candidate[UNITS] > available then
    return 'segment_empty'
  end
  return nil
end

local new_records, winners = {}, 0

local function write_later(candidate, state)
  new_records[#new_records + 1] = candidate[ID]
  new_records[#new_records + 1] =
    cmsgpack.pack({state, candidate[UNITS], BATCH_AT, BATCH_ID, candidate[BODY_HASH], candidate[WHO]})
end

local function win(candidate)
  local holding = holding_of[candidate[WHO]]
  holding[1] = holding[1] + candidate[UNITS]
  add_live_id(holding, candidate[ID])
  available, taken, winners = available - candidate[UNITS], taken + candidate[UNITS], winners + 1
  holding.changed = true
  batch[WINNERS][#batch[WINNERS] + 1] = candidate[ID]
  write_later(candidate, QUEUED)
  return 'won'
end

local function lose(candidate, word)
  batch[LOSERS][#batch[LOSERS] + 1] = candidate[ID]
  batch[LOSERS][#batch[LOSERS] + 1] = word
  if DEADLINE_MS then
    write_later(candidate, ENDED)
  end
  return word
end

local decided_now = not earlier
for _, candidate in ipairs(candidates) do
  local id = candidate[ID]
  if not word_of[id] then
    if record_of[id] then
      word_of[id] = 'known'
    else
      local word = refusal(candidate)
      word_of[id] = word and lose(candidate, word) or win(candidate)
      decided_now = true
    end
  end
end

local function write_winners()
  local holdings = {}
  for who, holding in pairs(holding_of) do
    if holding.changed then
      holding.changed = nil
      holdings[#holdings + 1] = who
      holdings[#holdings + 1] = cmsgpack.pack(holding)
    end
  end
  redis.call('HSET', BUYERS, unpack(holdings))
  redis.call('HINCRBY', STOCK, 'available', -taken)
  for _, counter in ipairs({'held', 'queued', 'buyers_units'}) do
    redis.call('HINCRBY', STOCK, counter, taken)
  end
  local bodies = redis.call('HGET', BODIES, BATCH_ID)
  redis.call('HSET', BODIES, BATCH_ID, bodies and (bodies .. '\n' .. body) or body)
  redis.call('HINCRBY', PENDING, BATCH_ID, winners)
  redis.call('ZADD', UNDELIVERED, 'NX', batch[DECIDED_AT], BATCH_ID)
end

if decided_now then
  redis.call('HSET', BATCHES, BATCH_ID, cmsgpack.pack(batch))
  if #new_records > 0 then
    redis.call('HSET', RECORDS, unpack(new_records))
  end
  if winners > 0 then
    write_winners()
  end
end

local reply = {'ok', earlier and 1 or 0, held + taken}
for _, candidate in ipairs(candidates) do
  local word = word_of[candidate[ID]]
  if word == 'known' then
    add_known(reply, candidate[ID], record_of[candidate[ID]])
  elseif word == 'won' then
    add_word(reply, word)
  else
    add_refusal(reply, word, holding_of[candidate[WHO]])
  end
end
return reply
