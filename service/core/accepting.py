"""The writing half of the order transaction: what an accepted order is in SQL, whichever road its candidate took."""

from __future__ import annotations

from collections.abc import Sequence

from service.domain.event import event_of_order
from service.domain.ids import BuyerId
from service.domain.order import Order
from service.domain.sale import Sale
from service.ports.orders import SaleTransaction, StockMovement


async def write_accepted(transaction: SaleTransaction, sale: Sale, accepted: Sequence[Order], now_ms: int) -> None:
    """Rows, stock, buyer counters and events of accepted orders."""
    if not accepted:
        return
    await transaction.insert_orders(accepted)
    units: dict[BuyerId, int] = {}
    for order in accepted:
        units[order.buyer_id] = units.get(order.buyer_id, 0) + order.quantity
    await transaction.add_buyer_units(sale.id, units, sale.rules.limit_per_buyer)
    movement = StockMovement(
        key=f"order:{accepted[0].id}",
        sale_id=sale.id,
        kind="orders",
        delta=-sum(order.quantity for order in accepted),
        at_ms=now_ms,
    )
    await transaction.move_stock([movement])
    await transaction.emit([event_of_order(order, now_ms) for order in accepted])
