"""What an operator calls: sales, their stock and their ledger. A viewer reads."""

from __future__ import annotations

from msgspec import UNSET

from service.api.bodies import NoBody, OpenBody, SaleBody, SalePatch, StockBody, to_ms
from service.api.http import Answer, Call, json_answer
from service.api.services import ApiServices
from service.api.storefront import sale_id_of
from service.api.views import admin_sale_view, ledger_view, sales_view
from service.core.sales import is_warm
from service.domain.ids import SaleId
from service.domain.sale import Authority, Sale, SaleRules


async def create_sale(call: Call, body: SaleBody) -> Answer:
    """Create a sale, a draft."""
    sale = await call.services.sales.create(SaleId(body.id), _rules(body, call.services), call.actor)
    location = (b"location", b"/admin/v1/sales/" + sale.id.encode())
    return json_answer(admin_sale_view(sale), status=201, headers=(location,))


async def list_sales(call: Call, _: NoBody) -> Answer:
    """List the sales."""
    return json_answer(sales_view(await call.services.sales.list()))


async def read_sale(call: Call, _: NoBody) -> Answer:
    """Read a sale."""
    return _shown(await call.services.sales.get(sale_id_of(call)))


async def change_sale(call: Call, body: SalePatch) -> Answer:
    """Change a sale's rules."""
    return _shown(await call.services.sales.change_rules(sale_id_of(call), _changes(body), call.actor))


async def warm_sale(call: Call, _: NoBody) -> Answer:
    """Load a sale's stock."""
    return _shown_if_warm(await call.services.sales.warm(sale_id_of(call), call.actor))


async def open_sale(call: Call, body: OpenBody) -> Answer:
    """Open a sale: it sells inside its window."""
    return _shown_if_warm(await call.services.sales.open(sale_id_of(call), warm=body.warm, actor=call.actor))


async def close_sale(call: Call, _: NoBody) -> Answer:
    """Close a sale; it can be opened again."""
    return _shown(await call.services.sales.close(sale_id_of(call), call.actor))


async def settle_sale(call: Call, _: NoBody) -> Answer:
    """Settle a closed sale, for good."""
    return _shown(await call.services.sales.settle(sale_id_of(call), call.actor))


async def adjust_stock(call: Call, body: StockBody) -> Answer:
    """Add or take units, once for each adjustment_id."""
    sales = call.services.sales
    return _shown(await sales.adjust(sale_id_of(call), body.adjustment_id, body.delta, call.actor))


async def read_ledger(call: Call, _: NoBody) -> Answer:
    """Read every term of a sale's books."""
    return json_answer(ledger_view(await call.services.ledgers.ledger(sale_id_of(call))))


def _shown(sale: Sale) -> Answer:
    return json_answer(admin_sale_view(sale))


def _shown_if_warm(sale: Sale) -> Answer:
    """202 where the keeper has yet to load it: until then it does not sell."""
    return json_answer(admin_sale_view(sale), status=200 if is_warm(sale) else 202)


def _rules(body: SaleBody, services: ApiServices) -> SaleRules:
    return SaleRules(
        sku=body.sku,
        stock=body.stock,
        price=body.price,
        currency=body.currency,
        limit_per_buyer=body.limit_per_buyer,
        opens_at_ms=to_ms(body.opens_at),
        closes_at_ms=to_ms(body.closes_at),
        payment_window_s=body.payment_window_s or services.payment_window_s,
        queue_deadline_s=body.queue_deadline_s or services.queue_deadline_s,
        on_redis_loss=body.on_redis_loss,
        wanted_authority=Authority(body.authority),
        segments=body.segments,
    )


def _changes(body: SalePatch) -> dict[str, object]:
    """What the body names, under the names of SaleRules."""
    changes: dict[str, object] = {}
    for name in body.__struct_fields__:
        value = getattr(body, name)
        if value is UNSET:
            continue
        if name in {"opens_at", "closes_at"}:
            changes[f"{name}_ms"] = to_ms(value)
        else:
            changes[name] = value
    return changes
