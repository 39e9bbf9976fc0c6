-- include/refusals.lua: an answer is three items: a word, a reservation's local id, its packed record ('' where there is none).
-- Needs RECORDS.

-- limit_reached shows the buyer's newest live reservation.
local function add_refusal(reply, word, buyer)
  local id, packed = '', false
  if word == 'limit_reached' and #buyer >= FIRST_ID then
    id = buyer[#buyer]
    packed = redis.call('HGET', RECORDS, id)
  end
  reply[#reply + 1] = word
  reply[#reply + 1] = packed and id or ''
  reply[#reply + 1] = packed or ''
end

local function add_known(reply, id, packed)
  reply[#reply + 1] = 'known'
  reply[#reply + 1] = id
  reply[#reply + 1] = packed
end

local function add_word(reply, word)
  reply[#reply + 1] = word
  reply[#reply + 1] = ''
  reply[#reply + 1] = ''
end
