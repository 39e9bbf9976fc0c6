"""The least that a script can do for a seller."""

from __future__ import annotations

TAKE = """
local left = tonumber(redis.call('HGET', KEYS[1], 'available') or 0)
if left < tonumber(ARGV[1]) then return -1 end
redis.call('HSET', KEYS[2], ARGV[2], ARGV[1])
return redis.call('HINCRBY', KEYS[1], 'available', -ARGV[1])
"""
"""Less than any seller needs: no limit a buyer, no idempotency, no record of what was decided."""
