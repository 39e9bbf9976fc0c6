-- include/clock.lua: the one clock of decided-at and of deadlines: Redis's own time plus OFFSET_MS, which is 0 outside tests.

local function now_ms()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000) + OFFSET_MS
end
