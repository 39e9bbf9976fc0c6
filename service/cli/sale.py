"""`dropgate sale create|warm|open|close|settle|stock|show`."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Coroutine
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli.output import AsJson, Failure, Home, console, facts_table, print_json, say, say_error, table, whole
from service.cli.sale_view import money, sale_facts, sale_view
from service.cli.services import actor, quiet_settings, with_operator
from service.domain.errors import InDoubt
from service.domain.ids import SALE_ID, SaleId
from service.domain.sale import Authority, OnRedisLoss, Sale, SaleRules, SaleStatus

if TYPE_CHECKING:
    from service.bootstrap import OperatorServices

SILENCE_S = 1.0

sales = typer.Typer(no_args_is_help=True, help="Sales: make, prepare, open and close them.")

Id = Annotated[str, typer.Argument(metavar="SALE", help="The sale's id.")]


def parse_time(text: str, option: str) -> datetime:
    """RFC 3339 with its offset: a time without one would mean something else on every machine."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a time like 2030-01-31T12:00:00Z.", param_hint=option) from None
    if found.tzinfo is None:
        raise typer.BadParameter(f"{text!r} names no offset: add Z for UTC, or one like +02:00.", param_hint=option)
    return found


def parse_sale_id(text: str) -> SaleId:
    if not SALE_ID.fullmatch(text):
        raise typer.BadParameter(f"{text!r} is not a sale id: 1-48 of a-z, 0-9, - and _.", param_hint="'SALE'")
    return SaleId(text)


@sales.command()
def create(  # noqa: PLR0913, PLR0917 - Typer's options are arguments
    sale_id: Id,
    sku: Annotated[str, typer.Option(help="What is sold.")],
    stock: Annotated[int, typer.Option(metavar="UNITS", parser=whole("--stock"), help="Units for sale.")],
    price: Annotated[
        int,
        typer.Option(
            metavar="MINOR", parser=whole("--price"), help="Of one unit, in minor units: 4900 with EUR is 49.00 EUR."
        ),
    ],
    currency: Annotated[str, typer.Option(help="ISO 4217, such as EUR.")] = "EUR",
    limit: Annotated[
        int, typer.Option(metavar="UNITS", parser=whole("--limit", least=1), help="Units a buyer may hold.")
    ] = 1,
    opens_at: Annotated[
        str | None, typer.Option(metavar="TIME", help="Sells from then on; RFC 3339 (default: once opened).")
    ] = None,
    closes_at: Annotated[
        str | None, typer.Option(metavar="TIME", help="Sells until then; RFC 3339 (default: until closed).")
    ] = None,
    payment_window: Annotated[
        int | None,
        typer.Option(
            metavar="SECONDS",
            parser=whole("--payment-window", least=1, most=86_400),
            help="Time to pay (default: the setting).",
        ),
    ] = None,
    on_redis_loss: Annotated[OnRedisLoss, typer.Option(help="While Redis is rebuilt: refuse, or sell on SQL.")] = (
        OnRedisLoss.REJECT
    ),
    on_sql: Annotated[
        bool, typer.Option("--on-sql", metavar="", help="Let SQL alone decide for ever: for small sales.")
    ] = False,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Make a sale. It sells once it is warmed and opened."""
    settings = quiet_settings(home)
    rules = SaleRules(
        sku=sku,
        stock=stock,
        price=price,
        currency=currency.upper(),
        limit_per_buyer=limit,
        opens_at_ms=_ms(opens_at, "'--opens-at'"),
        closes_at_ms=_ms(closes_at, "'--closes-at'"),
        payment_window_s=payment_window or settings.payment_window_s,
        queue_deadline_s=settings.queue_deadline_s,
        on_redis_loss=on_redis_loss,
        wanted_authority=Authority.SQL if on_sql else Authority.REDIS,
    )
    id_ = parse_sale_id(sale_id)
    _act(home, as_json, lambda services: services.sales.create(id_, rules, actor()))


def _ms(text: str | None, option: str) -> int | None:
    return None if text is None else int(parse_time(text, option).astimezone(UTC).timestamp() * 1000)


@sales.command()
def warm(sale_id: Id, home: Home = None, as_json: AsJson = False) -> None:
    """Prepare a sale: the keeper loads its stock into Redis. Repeatable. Exit code 1 if it is not loaded in 10 s."""
    id_ = parse_sale_id(sale_id)

    async def work(services: OperatorServices) -> Sale:
        return await _patiently(services.sales.warm(id_, actor()))

    _must_be_warm(_act(home, as_json, work))


@sales.command(name="open")
def open_(
    sale_id: Id,
    warm_first: Annotated[
        bool,
        typer.Option("--warm", metavar="", help="Warm it first. Exit code 1 if it is open, but not loaded."),
    ] = False,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Let a sale sell, inside its window."""
    id_ = parse_sale_id(sale_id)

    async def work(services: OperatorServices) -> Sale:
        return await _patiently(services.sales.open(id_, warm=warm_first, actor=actor()))

    _must_be_warm(_act(home, as_json, work))


@sales.command()
def close(sale_id: Id, home: Home = None, as_json: AsJson = False) -> None:
    """Stop selling. `sale open` takes it back, until the sale is settled."""
    id_ = parse_sale_id(sale_id)
    _act(home, as_json, lambda services: services.sales.close(id_, actor()))


@sales.command()
def settle(sale_id: Id, home: Home = None, as_json: AsJson = False) -> None:
    """End a closed sale for good: it leaves Redis, and can never be opened, changed or restocked again.

    Orders stay as they are: what awaits its payment can still be paid, and unpaid orders end in their time.
    """
    id_ = parse_sale_id(sale_id)
    _act(home, as_json, lambda services: services.sales.settle(id_, actor()))


@sales.command()
def stock(  # noqa: PLR0917 - Typer's options are arguments
    sale_id: Id,
    add: Annotated[
        int | None, typer.Option(metavar="UNITS", parser=whole("--add", least=1), help="So many more are for sale.")
    ] = None,
    remove: Annotated[
        int | None,
        typer.Option(metavar="UNITS", parser=whole("--remove", least=1), help="So many unsold ones go."),
    ] = None,
    adjustment_id: Annotated[
        str | None,
        typer.Option(
            "--id", metavar="ID", help="What it is noted under: the same id counts once (default: a new one)."
        ),
    ] = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Add units to a sale, or take unsold ones out. Once for each --id, also while it sells."""
    id_ = parse_sale_id(sale_id)
    if (add is None) == (remove is None):
        raise typer.BadParameter("say one of them: how many units.", param_hint="'--add' / '--remove'")
    delta = add if add is not None else -(remove or 0)
    known_as = adjustment_id or f"cli-{secrets.token_hex(6)}"
    try:
        _act(home, as_json, lambda services: services.sales.adjust(id_, known_as, delta, actor()))
    except InDoubt as error:
        raise Failure(
            f"Not known yet whether it was done ({error}). Ask again, it counts once: "
            f"dropgate sale stock {id_} {'--add' if delta > 0 else '--remove'} {abs(delta)} --id {known_as}"
        ) from None
    if not as_json:
        say(f"Noted as {known_as}.")


@sales.command()
def show(
    sale_id: Annotated[str | None, typer.Argument(metavar="[SALE]", help="Without it: all sales.")] = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Show a sale, or list them all."""
    if sale_id is not None:
        id_ = parse_sale_id(sale_id)
        _act(home, as_json, lambda services: services.sales.get(id_))
        return
    found = list(with_operator(home, lambda services: services.sales.list()))
    if as_json:
        print_json({"sales": [sale_view(sale) for sale in found]})
    elif not found:
        say("There are no sales yet: make one with `dropgate sale create`.")
    else:
        _print_list(found)


async def _patiently(work: Coroutine[Any, Any, Sale]) -> Sale:
    """Who sees nothing happen is told what for."""
    working = asyncio.ensure_future(work)
    done, _ = await asyncio.wait({working}, timeout=SILENCE_S)
    if not done:
        say_error("Waiting until the keeper has loaded it, 10 s at most …")
    return await working


def _must_be_warm(sale: Sale) -> None:
    from service.core.sales import is_warm

    if not is_warm(sale):
        raise Failure(
            f"{'Open, but not' if sale.status is SaleStatus.OPEN else 'Not'} loaded yet, and not for sale until it is. "
            "Does a keeper run (`dropgate keeper`), and does Redis answer? Once it is loaded, "
            f"`dropgate sale show {sale.id}` says authority {sale.rules.wanted_authority}."
        )


def _act(home: Home, as_json: bool, work: Callable[[OperatorServices], Awaitable[Sale]]) -> Sale:
    """Do it, and show the sale as it is afterwards."""
    sale = with_operator(home, work)
    if as_json:
        print_json(sale_view(sale))
    else:
        console().print(facts_table(f"Sale {sale.id}", {k: v for k, v in sale_facts(sale).items() if k != "id"}))
    return sale


def _print_list(found: list[Sale]) -> None:
    columns = ("sale", "status", "authority", "left", "price")
    rows = [
        (
            sale.id,
            sale.status.value,
            sale.authority.value,
            f"{sale.available:,} of {sale.capacity:,}",
            money(sale.rules.price, sale.rules.currency),
        )
        for sale in found
    ]
    console().print(table("Sales", columns, rows, right=("left", "price"), whole_words=("status", "authority")))


def register(app: typer.Typer) -> None:
    app.add_typer(sales, name="sale")
