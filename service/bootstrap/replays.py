"""The wiring of check-back replay."""

from __future__ import annotations

from service.adapters.sql.replays import SqlReplayStore
from service.bootstrap.adapters import Adapters
from service.core.directory import SaleDirectory
from service.core.in_doubt import InDoubtFinder
from service.core.named import NamedIds
from service.core.one_look import OneLook
from service.core.order_intake import OrderIntake
from service.core.replay import ReplayService
from service.core.replay_acts import ReplayActs
from service.core.standings import Standings
from service.core.stranded import StrandedFinder
from service.domain.replay import Source


def replay_service(
    adapters: Adapters, directory: SaleDirectory, intake: OrderIntake, *, group: str, margin_ms: int
) -> ReplayService:
    """`group` is the order consumers'; `margin_ms` as of a 404."""
    clock, orders, transport = adapters.clock, adapters.orders, adapters.transport
    store = SqlReplayStore(adapters.database)

    def new_look() -> OneLook:
        return OneLook(adapters.stock, clock)

    def standings(look: OneLook) -> Standings:
        return Standings(orders, look, clock, margin_ms=margin_ms)

    def named(standings: Standings) -> NamedIds:
        return NamedIds(directory, orders, standings)

    def in_doubt() -> InDoubtFinder:
        look = new_look()
        stand = standings(look)
        return InDoubtFinder(directory, look, stand, named(stand), clock)

    def stranded() -> StrandedFinder:
        look = new_look()
        stand = standings(look)
        return StrandedFinder(
            directory=directory,
            look=look,
            transport=transport,
            group=group,
            replays=store,
            standings=stand,
            named=named(stand),
        )

    return ReplayService(
        finders={Source.IN_DOUBT: in_doubt, Source.DISCARDED: stranded, Source.DEAD_LETTER: stranded},
        acts=ReplayActs(
            intake=intake,
            transport=transport,
            group=group,
            directory=directory,
            standings=lambda: standings(new_look()),
        ),
        store=store,
        clock=clock,
    )
