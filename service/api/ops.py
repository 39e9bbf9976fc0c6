"""What machines ask: is it alive, is it ready, how does it fare, what can it do."""

from __future__ import annotations

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from service.api.bodies import NoBody
from service.api.errors import NotReady
from service.api.http import NO_STORE, Answer, Call, json_answer
from service.api.views import HealthView, ReadyView


async def healthz(_call: Call, _: NoBody) -> Answer:
    """Say that this process is alive.

    Asks nothing of anybody: a component that is away is no reason to restart.
    """
    return json_answer(HealthView())


async def readyz(call: Call, _: NoBody) -> Answer:
    """Say whether this process can sell."""
    missing = await call.services.readiness.missing()
    if missing:
        raise NotReady(missing)
    return json_answer(ReadyView(advice=list(call.services.readiness.advice)))


async def metrics(_call: Call, _: NoBody) -> Answer:
    """Show the metrics to Prometheus."""
    content_type = (b"content-type", CONTENT_TYPE_LATEST.encode())
    return Answer(status=200, body=generate_latest(), headers=(content_type, NO_STORE))
