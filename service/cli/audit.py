"""`dropgate audit`: the invariants of every sale, as a table or as JSON."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from service.cli.ledger_view import ledger_view, rows_of
from service.cli.output import AsJson, Home, console, print_json, say, table
from service.cli.services import with_operator
from service.domain.ids import SaleId

if TYPE_CHECKING:
    from service.bootstrap import OperatorServices
    from service.domain.ledger import Ledger

LOOK_S = 0.5
Look = Callable[[], Awaitable[Sequence["Ledger"]]]


def audit(
    sale: Annotated[str | None, typer.Option("--sale", metavar="SALE", help="Only this sale.")] = None,
    wait: Annotated[float, typer.Option("--wait", min=0, help="Seconds to wait until nothing is under way.")] = 30.0,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Check that the books of every sale balance: units in SQL and in Redis, buyers' limits, payments.

    Exit code 0 if all balance and nothing is under way any more, 1 if not.
    """

    async def work(services: OperatorServices) -> Sequence[Ledger]:
        async def look() -> Sequence[Ledger]:
            return [await services.ledgers.ledger(SaleId(sale))] if sale else await services.ledgers.all()

        return await until_quiet(look, wait, LOOK_S)

    ledgers = with_operator(home, work)
    balanced = all(ledger.balanced for ledger in ledgers)
    quiet = all(ledger.quiet for ledger in ledgers)
    if as_json:
        print_json({"balanced": balanced, "quiet": quiet, "sales": [ledger_view(ledger) for ledger in ledgers]})
    else:
        _print(ledgers)
    raise typer.Exit(0 if balanced and quiet else 1)


async def until_quiet(look: Look, wait_s: float, pause_s: float) -> Sequence[Ledger]:
    """Look until all is quiet and balanced, or the same problems were seen twice in quiet, or time is up."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait_s
    before: list[tuple[str, ...]] | None = None
    while True:
        ledgers = await look()
        quiet = all(ledger.quiet for ledger in ledgers)
        problems = [ledger.problems() for ledger in ledgers]
        if quiet and (not any(problems) or problems == before):
            return ledgers
        if loop.time() + pause_s > deadline:
            return ledgers
        before = problems if quiet else None
        await asyncio.sleep(pause_s)


def _print(ledgers: Sequence[Ledger]) -> None:
    if not ledgers:
        say("There are no sales: nothing to audit.")
    for ledger in ledgers:
        print_ledger(ledger)
    if len(ledgers) > 1:
        say(_verdict_on_all(ledgers))


def _verdict_on_all(ledgers: Sequence[Ledger]) -> str:
    broken = [ledger.sale_id for ledger in ledgers if not ledger.balanced]
    unknown = [ledger.sale_id for ledger in ledgers if ledger.balanced and not ledger.quiet]
    if broken:
        return f"\n✗ {len(broken)} of {len(ledgers)} sales do NOT balance: {', '.join(broken)}"
    if unknown:
        return f"\n– {len(unknown)} of {len(ledgers)} sales are not known yet: {', '.join(unknown)}"
    return f"\n✓ All {len(ledgers)} sales balance."


def print_ledger(ledger: Ledger) -> None:
    """The table of one sale, and what is wrong with it."""
    rows = [(row.invariant, row.where, row.what, row.figures, row.mark) for row in rows_of(ledger)]
    title = f"Sale {ledger.sale_id} (authority {ledger.authority}, epoch {ledger.epoch})"
    console().print(table(title, ("rule", "in", "what must hold", "figures", "ok"), rows, whole_words=("rule", "in")))
    for problem in ledger.problems():
        say(f"✗ {problem}")
    for sentence in ledger.under_way():
        say(f"– Under way: {sentence}")
    say(f"{_verdict(ledger)}: {ledger.sale_id}")


def _verdict(ledger: Ledger) -> str:
    if not ledger.balanced:
        return "✗ NOT balanced"
    return "✓ Balanced" if ledger.quiet else "– NOT known: rows marked – can be compared once nothing is under way"


def register(app: typer.Typer) -> None:
    app.command()(audit)
