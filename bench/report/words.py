"""How numbers are written, in tables and pictures alike."""

from __future__ import annotations

from collections.abc import Callable

from bench.figures import Audit, Latency
from bench.report.groups import Group, Spread

NONE = "–"
BROKEN = "✗"
OTHERS = "all others"
"""The processes that were watched and are no servers: ours, and the generator."""

FAULTS: dict[str, Callable[[Audit], int]] = {
    "oversold": lambda audit: audit.oversold,
    "lost": lambda audit: audit.lost,
    "in doubt": lambda audit: audit.in_doubt,
}
"""What an audit must not find, in the words of every table."""

P50, P99, P999 = "p50 ms", "p99 ms", "p99.9 ms"
LATENCIES: dict[str, Callable[[Latency], float]] = {
    P50: lambda latency: latency.p50_ms,
    P99: lambda latency: latency.p99_ms,
    P999: lambda latency: latency.p999_ms,
}


def number(value: float) -> str:
    """About three digits that count: 12,300, 86.4, 2.35. What was counted, an int, is whole."""
    size = abs(value)
    if isinstance(value, int) or size >= 100 or not size:
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 10 else f"{value:.2f}"


def clients(count: int) -> str:
    return "1 client" if count == 1 else f"{count:,} clients"


def spread(found: Spread | None) -> str:
    """The median, and from the least to the most where these differ."""
    if found is None:
        return NONE
    if found.least == found.most:
        return number(found.median)
    return f"{number(found.median)} ({number(found.least)}–{number(found.most)})"


def faults_of(group: Group) -> str:
    """Such as `oversold 1,203, lost 7`; "" where the audits are clean or there are none."""
    found = ((name, group.worst(count)) for name, count in FAULTS.items())
    return ", ".join(f"{name} {count:,}" for name, count in found if count)
