-- peek.lua: read only. What is known of each candidate, or why it would get nothing now. No running totals: whoever is refused
-- here is told so, and that must be true of this instant whatever becomes of the candidates before it.
-- KEYS: meta, stock, records, buyers
-- ARGV: epoch, limit per buyer ('' for a look at records only), candidates (MessagePack: {id, buyer, quantity, fingerprint} each)
-- Replies:
--   {'ok', units held in the slot, then for each candidate: word, id, packed record}, the word being
--      'known' with its record | 'limit_reached' with the buyer's newest live one | 'segment_empty' | 'undecided'
--   {'lost', run_id, replid}
-- Bound: 128 candidates; 500 ids without a limit.

local META, STOCK, RECORDS, BUYERS = unpack(KEYS)
local EPOCH, LIMIT, candidates = ARGV[1], tonumber(ARGV[2]), cmsgpack.unpack(ARGV[3])
local ID, WHO, UNITS = 1, 2, 3

--#include same_redis.lua
--#include same_stock.lua
--#include whole_slot.lua
--#include records.lua
--#include refusals.lua

local gone = lost_slot()
if gone then
  return gone
end

local ids, buyers = {}, {}
for position, candidate in ipairs(candidates) do
  ids[position], buyers[position] = candidate[ID], candidate[WHO]
end
local records = packed_records(ids)
local holdings = {}
if LIMIT and #buyers > 0 then
  holdings = redis.call('HMGET', BUYERS, unpack(buyers))
end
local stock = redis.call('HMGET', STOCK, 'available', 'held')
local available, held = tonumber(stock[1] or 0), tonumber(stock[2] or 0)

local reply = {'ok', held}
for position, candidate in ipairs(candidates) do
  local buyer = holdings[position] and cmsgpack.unpack(holdings[position]) or {0}
  if records[position] then
    add_known(reply, candidate[ID], records[position])
  elseif LIMIT and buyer[1] + candidate[UNITS] > LIMIT then
    add_refusal(reply, 'limit_reached', buyer)
  elseif LIMIT and candidate[UNITS] > available then
    add_refusal(reply, 'segment_empty', buyer)
  else
    add_word(reply, 'undecided')
  end
end
return reply
