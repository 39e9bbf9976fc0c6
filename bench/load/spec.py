"""What the generator is told, and what it says at its end: one JSON object each way."""

from __future__ import annotations

import msgspec

from bench.figures import Latency


class Pay(msgspec.Struct, frozen=True, kw_only=True):
    """The crowd pays, each buyer the reservation they have: signed as a payment side signs."""

    sale: str
    amount: int
    currency: str
    secret: str


class LoadSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A crowd for one sale. Closed loop where `per_s` is None: each client asks again once it has its answer. With
    `per_s`, requests come by a clock whatever the answers do, and a latency counts from when its request was due."""

    host: str
    port: int
    path: str
    bearer: str
    clients: int
    warm_s: float
    seconds: float
    first_buyer: int = 0
    buyers_max: int | None = None
    """So many requests, and then the end, however long it takes; None: until `seconds` are over."""
    per_s: float | None = None
    hostile_per_s: float = 0.0
    """So many requests a second more are what no client should send (hostile.py)."""
    pay: Pay | None = None


class LoadResult(msgspec.Struct, frozen=True, kw_only=True):
    """`answers`: by code, of what was answered in the measured time (by a clock: of what was due in it); `latencies`:
    by code, of the same, from when it was asked, be that in the warm-up, and of what was still open at the end, by its
    whole wait: the generator waits for it, and cuts nothing off. `told`: the numbers of all buyers who were ever told
    of a reservation, warm-up included; `unheard`: buyers whose connection broke before an answer. `began_s` and
    `ended_s` of the measured time are of the monotonic clock, which all processes of a machine share. `hostile_acts`:
    by kind, of the measured time too; and those that were due and could not be."""

    seconds: float
    began_s: float
    ended_s: float
    answers: dict[str, int]
    latencies: dict[str, Latency]
    told: list[int]
    unheard: list[int]
    hostile_acts: dict[str, int]
    cpu_s: float
    """Of the generator, over the measured time: near `seconds` it measured itself."""
    clients: int
    starved: int = 0
    """Clients of a closed loop that had no answer at all in the measured time."""
    under_way: float | None = None
    """How many requests were, by Little's law: the waits of all `answers`, over the time. As many as there are clients,
    or something was not measured. None: by a clock, or where there is an end of buyers."""
