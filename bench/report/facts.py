"""Single numbers that are neither a rate nor a latency."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class FactName(StrEnum):
    """The value of a fact is one of these, or another text."""

    REDIS_BYTES = "Redis memory of a live reservation"
    """In bytes."""
    EXPIRED_AFTER = "10,000 unpaid orders due at once, all cancelled and back on sale"
    """In seconds after they were due. Where some never were: the deadline of the measurement, which is longer."""

    SOAK_GREW = "memory that a process gained from the first half of a soak to the second"
    """In megabytes, of the process that gained most: between the most that it had in each half."""


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """One number about one subject; repeats are facts of their own."""

    name: str
    subject: str
    value: float
    unit: str
