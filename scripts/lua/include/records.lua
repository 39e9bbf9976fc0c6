-- include/records.lua: how a slot stores what it knows, as MessagePack: a record is an array (positions below) under the local part
-- of its reservation id; a buyer is {units, id, id, ...}, the newest live reservation last.
-- Needs RECORDS.

local STATE, QUANTITY, CREATED_AT, BATCH, FINGERPRINT, BUYER = 1, 2, 3, 4, 5, 6
local QUEUED, ORDERED, ENDED = 'q', 'o', 'e'
local FIRST_ID = 2  -- in a buyer's array, after the units
local IDS_MAX = 8   -- live ids kept of a buyer: only the newest is ever told

-- The packed records of these ids, false where there is none: one read, so at most a few hundred ids.
local function packed_records(ids)
  if #ids == 0 then
    return {}
  end
  return redis.call('HMGET', RECORDS, unpack(ids))
end

local function add_live_id(buyer, id)
  buyer[#buyer + 1] = id
  if #buyer - 1 > IDS_MAX then
    table.remove(buyer, FIRST_ID)
  end
end
