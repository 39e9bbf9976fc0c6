"""What each buyer of the demo will do. Pure and seeded: the same seed gives the same people."""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import StrEnum

SALE = "demo-drop"
PRICE = 4900
CURRENCY = "EUR"

MIN_WINDOW_S, MAX_WINDOW_S = 6, 60
WINNERS_A_SECOND = 33
"""How many orders the tills get through even on a machine that is busy with other things."""
STOCK_MAX, BUYERS_A_UNIT = 1_000, 20
SECOND_WAVE_FACTOR = 3
ASKS_AGAIN = 0.05


class Deed(StrEnum):
    """What a winner does about the payment."""

    PAY = "pay"
    CANCEL = "cancel"
    LAPSE = "lapse"
    """Never pays: the payment window ends the order."""
    PAY_LATE = "pay_late"
    """Pays once the order is gone: the money must come back, the order must not."""


class Charge(StrEnum):
    """How the payment side reports a payment."""

    ONCE = "once"
    REPORTED_TWICE = "reported_twice"
    """The same payment, delivered again: it counts once."""
    CHARGED_TWICE = "charged_twice"
    """Two payments for one order: one is refunded."""


@dataclass(frozen=True, slots=True)
class Buyer:
    """One person with one Idempotency-Key. `asks_again`: repeats an answered request, as if the reply were lost."""

    number: int
    deed: Deed
    charge: Charge
    asks_again: bool

    @property
    def id(self) -> str:
        return f"buyer-{self.number:06}"

    @property
    def key(self) -> str:
        return f"demo-key-{self.number:06}"


def first_wave_buyer(seed: int, number: int) -> Buyer:
    """About 70 % of winners pay, 10 % cancel, 17 % forget, 3 % pay too late; 5 % of all ask again."""
    dice = random.Random(seed * 1_000_003 + number)  # noqa: S311 - repeatable on purpose, no secret
    deeds, charges = list(Deed), list(Charge)
    return Buyer(
        number=number,
        deed=dice.choices(deeds, weights=(70, 10, 17, 3))[0],
        charge=dice.choices(charges, weights=(92, 6, 2))[0],
        asks_again=dice.random() < ASKS_AGAIN,
    )


def second_wave_buyer(seed: int, number: int) -> Buyer:
    """Who lost at first and now finds a unit pays for it. The key is the old one: "sold out" binds no key."""
    first = first_wave_buyer(seed, number)
    return Buyer(number=number, deed=Deed.PAY, charge=first.charge, asks_again=first.asks_again)


def stock_for(buyers: int) -> int:
    """Units where nobody says how many: few enough for a rush, however many come."""
    return min(STOCK_MAX, max(1, buyers // BUYERS_A_UNIT))


def payment_window_s(winners: int) -> int:
    """Long enough for everyone who means to pay, and no longer: an audience waits for those who do not."""
    return min(MAX_WINDOW_S, max(MIN_WINDOW_S, winners // WINNERS_A_SECOND))


def second_wave(losers: list[int], units_back: int) -> list[int]:
    """Who tries again: more people than units, in the order in which they lost."""
    return losers[: units_back * SECOND_WAVE_FACTOR]


def backoff_s(attempt: int, retry_after_s: float | None, dice: float) -> float:
    """How long a client waits before it tries again: what the server asked for, or ever longer; with jitter."""
    base = retry_after_s if retry_after_s is not None else min(2.0, 0.05 * float(2**attempt))
    return base * (1.0 + 0.25 * dice)
