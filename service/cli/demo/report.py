"""How the demo ended: what buyers were told beside what the books say. Pure, but for printing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Books:
    """The ledger as the operator's API gives it."""

    balanced: bool
    quiet: bool
    problems: tuple[str, ...]
    capacity: int
    available: int
    awaiting_payment: int
    paid: int
    live: int
    redis_available: int | None
    payments: int
    refunds: int


def books(ledger: Mapping[str, Any]) -> Books:
    """Of GET /admin/v1/sales/{id}/ledger."""
    sql, segments = ledger["sql"], ledger["segments"]
    available = [segment["available"] for segment in segments if segment["readable"]]
    return Books(
        balanced=bool(ledger["balanced"]),
        quiet=bool(ledger["quiet"]),
        problems=tuple(ledger["problems"]),
        capacity=sql["initial"] + sql["adjusted"],
        available=sql["available"],
        awaiting_payment=sql["awaiting_payment"],
        paid=sql["paid"],
        live=sql["awaiting_payment"] + sql["paid"] + sql["refunded_kept"] + sql["under_review"],
        redis_available=sum(available) if segments and len(available) == len(segments) else None,
        payments=sql["payments_succeeded"],
        refunds=sql["refunds"],
    )


@dataclass(frozen=True, kw_only=True)
class Report:
    """Every figure of the end. The demo is content if `problems` is empty."""

    buyers: int
    stock: int
    seed: int
    accepted: int
    refused: int
    retries: dict[str, int]
    asked_again: int
    told_again: dict[str, int]
    replayed: int
    paid: int
    cancelled: int
    expired: int
    paid_late: int
    refunds_told: int
    resold: int
    lost: int
    in_doubt: int
    contradictions: tuple[str, ...]
    unexpected: dict[str, int]
    accept_p50_ms: float | None
    accept_p99_ms: float | None
    rush_s: float
    rush_requests_per_s: float
    total_s: float
    books: Books

    @property
    def oversold(self) -> int:
        return max(0, self.books.live - self.books.capacity)

    def problems(self) -> tuple[str, ...]:
        """Why the demo is not content: one sentence each."""
        broken = [sentence for is_broken, sentence in self._checks() if is_broken]
        contradictions = [f"Contradiction: {sentence}" for sentence in self.contradictions[:10]]
        unexpected = [f"Unexpected answer, {count} times: {what}" for what, count in self.unexpected.items()]
        return (*self.books.problems, *broken, *contradictions, *unexpected)

    def _checks(self) -> Iterator[tuple[bool, str]]:
        books = self.books
        yield not books.balanced and not books.problems, "The ledger does not balance."
        yield not books.quiet, "The sale did not become quiet in time."
        yield self.oversold > 0, f"{self.oversold} units were sold that do not exist."
        yield self.lost > 0, f"{self.lost} reservations were promised and never ended."
        yield self.in_doubt > 0, f"{self.in_doubt} buyers do not know what became of their request."
        yield self.paid != books.paid, f"{self.paid} buyers were told that they paid, the books have {books.paid}."
        yield books.awaiting_payment > 0, f"{books.awaiting_payment} orders wait for a payment that nobody will make."
        refunds = f"{self.refunds_told} refunds were announced, the books have {books.refunds}."
        yield self.refunds_told != books.refunds, refunds

    @property
    def ok(self) -> bool:
        return not self.problems()

    def view(self) -> dict[str, object]:
        """For machines."""
        facts = asdict(self) | {"oversold": self.oversold, "ok": self.ok, "problems": list(self.problems())}
        facts["contradictions"] = len(self.contradictions)
        return facts

    def rows(self) -> Iterator[tuple[str, str, str]]:
        """What, how many, and what it means or ✓/✗ where one figure must be so."""
        books = self.books
        yield "buyers", f"{self.buyers:,}", f"for {self.stock:,} units"
        yield "accepted", f"{self.accepted:,}", f"p50 {_ms(self.accept_p50_ms)}, p99 {_ms(self.accept_p99_ms)}"
        yield "left with sold out", f"{self.refused:,}", "some were told twice"
        again = ", ".join(f"{count:,} {what}" for what, count in self.told_again.items())
        yield "sent twice, same key", f"{self.asked_again:,}", again
        answers = ", ".join(f"{count:,} × {what}" for what, count in self.retries.items())
        yield "told to try again", f"{sum(self.retries.values()):,}", answers or "nobody had to"
        yield "paid", f"{self.paid:,}", _mark(self.paid == books.paid, "buyers and SQL agree")
        yield "cancelled by the buyer", f"{self.cancelled:,}", "the unit came back"
        yield "expired unpaid", f"{self.expired:,}", "the unit came back"
        yield "sold again", f"{self.resold:,}", "units that had come back"
        yield (
            "paid too late or twice",
            f"{books.refunds:,}",
            _mark(self.refunds_told == books.refunds, "one refund each" if books.refunds else "nothing to refund"),
        )
        yield "oversold", f"{self.oversold:,}", _mark(self.oversold == 0)
        yield "lost", f"{self.lost:,}", _mark(self.lost == 0)
        yield "in doubt", f"{self.in_doubt:,}", _mark(self.in_doubt == 0)
        yield "contradictions", f"{len(self.contradictions):,}", _mark(not self.contradictions)
        yield "left in SQL = in Redis", _both(books), _mark(books.balanced, "every term of the ledger balances")
        yield "the rush", f"{self.rush_s:.1f} s", f"{self.rush_requests_per_s:,.0f} requests/s"
        yield "everything", f"{self.total_s:.1f} s", ""


def _ms(value: float | None) -> str:
    return "–" if value is None else f"{value:.0f} ms"


def _mark(ok: bool, what: str = "") -> str:
    return f"{'✓' if ok else '✗'} {what}".rstrip()


def _both(books: Books) -> str:
    redis = "–" if books.redis_available is None else f"{books.redis_available:,}"
    return f"{books.available:,} = {redis}"
