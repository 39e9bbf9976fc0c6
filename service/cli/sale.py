"""`dropgate sale create|warm|open|close|settle|show`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from service.cli.output import AsJson, Home, console, facts_table, print_json, say, table
from service.cli.sale_view import sale_view
from service.cli.services import actor, quiet_settings, with_operator
from service.domain.ids import SALE_ID, SaleId
from service.domain.sale import Authority, OnRedisLoss, Sale, SaleRules

if TYPE_CHECKING:
    from service.bootstrap import OperatorServices

sales = typer.Typer(no_args_is_help=True, help="Sales: make, prepare, open and close them.")

Id = Annotated[str, typer.Argument(metavar="SALE", help="The sale's id.")]


def parse_time(text: str) -> datetime:
    """RFC 3339 with its offset: a time without one would mean something else on every machine."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a time like 2030-01-31T12:00:00Z.") from None
    if found.tzinfo is None:
        raise typer.BadParameter(f"{text!r} names no offset: add Z for UTC, or one like +02:00.")
    return found


def parse_sale_id(text: str) -> SaleId:
    if not SALE_ID.fullmatch(text):
        raise typer.BadParameter(f"{text!r} is not a sale id: 1-48 of a-z, 0-9, - and _.", param_hint="'SALE'")
    return SaleId(text)


@sales.command()
def create(  # noqa: PLR0913, PLR0917 - Typer's options are arguments
    sale_id: Id,
    sku: Annotated[str, typer.Option(help="What is sold.")],
    stock: Annotated[int, typer.Option(min=0, help="Units for sale.")],
    price: Annotated[int, typer.Option(min=0, help="Of one unit, in minor units of the currency.")],
    currency: Annotated[str, typer.Option(help="ISO 4217, such as EUR.")] = "EUR",
    limit: Annotated[int, typer.Option(min=1, help="Units a buyer may hold.")] = 1,
    opens_at: Annotated[
        str | None, typer.Option(metavar="TIME", help="Sells from then on; RFC 3339 (default: once opened).")
    ] = None,
    closes_at: Annotated[
        str | None, typer.Option(metavar="TIME", help="Sells until then; RFC 3339 (default: until closed).")
    ] = None,
    payment_window: Annotated[
        int | None, typer.Option(min=1, max=86_400, help="Seconds to pay (default: the setting).")
    ] = None,
    on_redis_loss: Annotated[OnRedisLoss, typer.Option(help="While Redis is rebuilt: refuse, or sell on SQL.")] = (
        OnRedisLoss.REJECT
    ),
    on_sql: Annotated[bool, typer.Option("--on-sql", help="Let SQL alone decide for ever: for small sales.")] = False,
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
        opens_at_ms=_ms(opens_at),
        closes_at_ms=_ms(closes_at),
        payment_window_s=payment_window or settings.payment_window_s,
        queue_deadline_s=settings.queue_deadline_s,
        on_redis_loss=on_redis_loss,
        wanted_authority=Authority.SQL if on_sql else Authority.REDIS,
    )
    id_ = parse_sale_id(sale_id)
    _act(home, as_json, lambda services: services.sales.create(id_, rules, actor()))


def _ms(text: str | None) -> int | None:
    return None if text is None else int(parse_time(text).astimezone(UTC).timestamp() * 1000)


@sales.command()
def warm(sale_id: Id, home: Home = None, as_json: AsJson = False) -> None:
    """Prepare a sale: the keeper loads its stock into Redis. Repeatable."""
    id_ = parse_sale_id(sale_id)
    _act(home, as_json, lambda services: services.sales.warm(id_, actor()))


@sales.command(name="open")
def open_(
    sale_id: Id,
    warm_first: Annotated[bool, typer.Option("--warm", help="Warm it first, if that was not done.")] = False,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Let a sale sell, inside its window."""
    id_ = parse_sale_id(sale_id)
    _act(home, as_json, lambda services: services.sales.open(id_, warm=warm_first, actor=actor()))


@sales.command()
def close(sale_id: Id, home: Home = None, as_json: AsJson = False) -> None:
    """Stop selling. `sale open` takes it back, until the sale is settled."""
    id_ = parse_sale_id(sale_id)
    _act(home, as_json, lambda services: services.sales.close(id_, actor()))


@sales.command()
def settle(sale_id: Id, home: Home = None, as_json: AsJson = False) -> None:
    """End a closed sale for good."""
    id_ = parse_sale_id(sale_id)
    _act(home, as_json, lambda services: services.sales.settle(id_, actor()))


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


def _act(home: Home, as_json: bool, work: Callable[[OperatorServices], Awaitable[Sale]]) -> None:
    """Do it, and show the sale as it is afterwards."""
    sale = with_operator(home, work)
    if as_json:
        print_json(sale_view(sale))
    else:
        console().print(facts_table(f"Sale {sale.id}", {k: v for k, v in sale_view(sale).items() if k != "id"}))


def _print_list(found: list[Sale]) -> None:
    columns = ("sale", "sku", "status", "authority", "epoch", "stock", "available", "price")
    rows = [
        (
            sale.id,
            sale.rules.sku,
            sale.status.value,
            sale.authority.value,
            str(sale.epoch),
            f"{sale.capacity:,}",
            f"{sale.available:,}",
            f"{sale.rules.price:,} {sale.rules.currency}",
        )
        for sale in found
    ]
    console().print(table("Sales", columns, rows, right=("epoch", "stock", "available", "price")))


def register(app: typer.Typer) -> None:
    app.add_typer(sales, name="sale")
