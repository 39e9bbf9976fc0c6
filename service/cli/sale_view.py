"""A sale as the command line shows it; the names are those of the operator's API."""

from __future__ import annotations

from service.domain.event import rfc3339
from service.domain.sale import Sale

# ISO 4217: the currencies whose unit is not a hundred minor ones.
NO_MINOR = frozenset("BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF".split())  # noqa: SIM905
THOUSANDTHS = frozenset({"BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND"})


def money(minor: int, currency: str) -> str:
    """For people: 4900 minor units of EUR are 49.00 EUR."""
    digits = 0 if currency in NO_MINOR else 3 if currency in THOUSANDTHS else 2
    whole, part = divmod(minor, 10**digits)
    return f"{whole:,}{f'.{part:0{digits}}' if digits else ''} {currency}"


def sale_facts(sale: Sale) -> dict[str, object]:
    """The same for people."""
    facts = sale_view(sale)
    price = money(sale.rules.price, sale.rules.currency)
    return {**facts, "lost": "yes" if sale.lost else "no", "price": f"{price} ({sale.rules.price} minor units)"}


def sale_view(sale: Sale) -> dict[str, object]:
    """Prices in minor units of the currency, times in RFC 3339."""
    rules = sale.rules
    return {
        "id": sale.id,
        "sku": rules.sku,
        "status": sale.status.value,
        "authority": sale.authority.value,
        "wanted_authority": rules.wanted_authority.value,
        "epoch": sale.epoch,
        "lost": sale.lost is not None,
        "initial": sale.initial,
        "adjusted": sale.adjusted,
        "available": sale.available,
        "price": rules.price,
        "currency": rules.currency,
        "limit_per_buyer": rules.limit_per_buyer,
        "opens_at": _time(rules.opens_at_ms),
        "closes_at": _time(rules.closes_at_ms),
        "payment_window_s": rules.payment_window_s,
        "queue_deadline_s": rules.queue_deadline_s,
        "on_redis_loss": rules.on_redis_loss.value,
        "segments": rules.segments,
        "created_at": _time(sale.created_at_ms),
    }


def _time(at_ms: int | None) -> str | None:
    return None if at_ms is None else rfc3339(at_ms)
