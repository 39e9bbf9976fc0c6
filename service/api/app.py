"""The ASGI app: the table of routes, served."""

from __future__ import annotations

import random
import re
from itertools import groupby

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as Path
from starlette.types import ASGIApp, Receive, Scope, Send

from service.api.http import REQUEST_ID_KEY
from service.api.routes import ROUTES
from service.api.routing import PathEndpoint, nowhere
from service.api.services import ApiServices

REQUEST_ID_BITS = 96
METRICS = "/metrics"
RESERVATIONS = "/v1/sales/{sale}/reservations"
RESERVE = re.compile(RESERVATIONS.replace("{sale}", "([^/]+)"))
"""As Starlette's own router reads the path."""


class FrontDoor:
    """Gives every request an id of ours, and leads those that reserve straight to their endpoint: the layers of a
    framework would cost as much as all else that such a request costs.

    The id names a request and guards nothing, so it costs no call of the system; and it is no count, which would tell
    everybody how much is asked here.
    """

    def __init__(self, app: Starlette, reserve: ASGIApp) -> None:
        self.app = app
        self._reserve = reserve
        self._random = random.Random()  # noqa: S311 - see above

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app: ASGIApp = self.app
        if scope["type"] == "http":
            scope[REQUEST_ID_KEY] = f"{self._random.getrandbits(REQUEST_ID_BITS):024x}"
            if (found := RESERVE.fullmatch(scope["path"])) is not None:
                scope["path_params"] = {"sale": found[1]}
                app = self._reserve
        await app(scope, receive, send)


def create_ops_app() -> Starlette:
    """What a process shows on its port for metrics: that it lives, and how it fares."""

    async def healthz(_request: Request) -> Response:
        return Response(b'{"status":"ok"}', media_type="application/json")

    async def metrics(_request: Request) -> Response:
        return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)

    return Starlette(routes=[Path("/healthz", healthz), Path(METRICS, metrics)])


def create_app(services: ApiServices, *, metrics_here: bool = True) -> FrontDoor:
    """The whole API over these services. It starts and stops nothing: that is the bootstrap's. Not `metrics_here`: they
    are on a port of their own, where buyers cannot read them."""
    endpoints = {
        path: PathEndpoint(services, list(routes))
        for path, routes in groupby(ROUTES, key=lambda route: route.path)
        if metrics_here or path != METRICS
    }
    app = Starlette(routes=[Path(path, endpoint) for path, endpoint in endpoints.items()])
    app.router.redirect_slashes = False
    app.router.default = nowhere
    return FrontDoor(app, endpoints[RESERVATIONS])
