"""What got stuck, and its replay: an operator acts, a viewer reads."""

from __future__ import annotations

from service.api.bodies import NoBody, ReplayBody, ReplayScopeBody
from service.api.http import Answer, Call, json_answer
from service.api.queries import query_of
from service.api.replay_views import dead_letters_view, in_doubt_view, replay_view
from service.domain.errors import InvalidRequest
from service.domain.ids import SALE_ID, BatchId, ReservationId, SaleId
from service.domain.replay import ReplayId, Scope, Source

SALE = "sale"


async def replay(call: Call, body: ReplayBody) -> Answer:
    """Replay check-backs; a dry run unless told otherwise.

    201 where it acted: it is stored, and can be looked at again.
    """
    query_of(call, ())
    services, scope = call.services, _scope(body.scope)
    if body.dry_run:
        looked = await services.replays.look(scope, actor=call.actor)
        return json_answer(replay_view(looked, services.clock.now_ms()))
    done = await services.replays.act(scope, why=body.why or "", actor=call.actor)
    location = (b"location", b"/admin/v1/replays/" + (done.id or "").encode())
    return json_answer(replay_view(done, services.clock.now_ms()), status=201, headers=(location,))


async def read_replay(call: Call, _: NoBody) -> Answer:
    """Read a replay that acted, its reservations as they stand now."""
    query_of(call, ())
    found = await call.services.replays.get(ReplayId(call.params["replay"]))
    return json_answer(replay_view(found, call.services.clock.now_ms()))


async def list_in_doubt(call: Call, _: NoBody) -> Answer:
    """List decided batches without orders, and count half messages."""
    scope = Scope(source=Source.IN_DOUBT, sale_id=_sale_asked(call))
    looked = await call.services.replays.look(scope, actor=call.actor)
    numbers = await call.services.broker.numbers()
    return json_answer(in_doubt_view(looked, numbers, call.services.clock.now_ms()))


async def list_dead_letters(call: Call, _: NoBody) -> Answer:
    """List the dead letters of our groups."""
    query_of(call, ())
    return json_answer(dead_letters_view(await call.services.broker.dead_letters()))


def _scope(body: ReplayScopeBody) -> Scope:
    scope = Scope(
        source=body.source,
        sale_id=None if body.sale is None else SaleId(body.sale),
        reservation_ids=tuple(dict.fromkeys(ReservationId(id_) for id_ in body.reservation_ids)),
        batch_ids=tuple(dict.fromkeys(BatchId(id_) for id_ in body.batch_ids)),
        older_than_s=body.older_than_s,
    )
    scope.check()
    return scope


def _sale_asked(call: Call) -> SaleId | None:
    named = query_of(call, {SALE}).get(SALE)
    if named is None:
        return None
    if not SALE_ID.fullmatch(named):
        raise InvalidRequest(SALE, "is no sale id")
    return SaleId(named)
