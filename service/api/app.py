"""The ASGI app: the table of routes, served."""

from __future__ import annotations

import random
from itertools import groupby

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as Path
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.http import REQUEST_ID_KEY
from service.api.routes import ROUTES
from service.api.routing import PathEndpoint, nowhere
from service.api.services import ApiServices

REQUEST_ID_BITS = 96
METRICS = "/metrics"


class RequestIds:
    """Gives every request an id of ours, and every answer the header that says it.

    It names a request and guards nothing, so it costs no call of the system; and it is no count, which would tell
    everybody how much is asked here.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._random = random.Random()  # noqa: S311 - see above

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = scope[REQUEST_ID_KEY] = f"{self._random.getrandbits(REQUEST_ID_BITS):024x}"
        header = (b"dropgate-request-id", request_id.encode())

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], header]
            await send(message)

        await self._app(scope, receive, send_with_id)


def create_ops_app() -> Starlette:
    """What a process shows on its port for metrics: that it lives, and how it fares."""

    async def healthz(_request: Request) -> Response:
        return Response(b'{"status":"ok"}', media_type="application/json")

    async def metrics(_request: Request) -> Response:
        return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)

    return Starlette(routes=[Path("/healthz", healthz), Path(METRICS, metrics)])


def create_app(services: ApiServices, *, metrics_here: bool = True) -> Starlette:
    """The whole API over these services. It starts and stops nothing: that is the bootstrap's. Not `metrics_here`: they
    are on a port of their own, where buyers cannot read them."""
    paths = [
        Path(path, PathEndpoint(services, list(routes)))
        for path, routes in groupby(ROUTES, key=lambda route: route.path)
        if metrics_here or path != METRICS
    ]
    app = Starlette(routes=paths, middleware=[Middleware(RequestIds)])
    app.router.redirect_slashes = False
    app.router.default = nowhere
    return app
