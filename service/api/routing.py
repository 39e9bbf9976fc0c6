"""One route of the table, and the ASGI app that serves a path: method, caller, signature, body, handler, problem."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from starlette.types import Receive, Scope, Send

from service.api.auth import May, admit
from service.api.bodies import Body, NoBody
from service.api.decoding import decoder
from service.api.errors import ClientGone, MethodNotAllowed, NoSuchRoute
from service.api.http import REQUEST_ID_KEY, Answer, Call, headers_of, read_body, send_answer
from service.api.payments import check_signature
from service.api.problems import problem
from service.api.services import ApiServices
from service.api.views import View

B = TypeVar("B", bound=Body)
Handler = Callable[[Call, Any], Awaitable[Answer]]
Observe = Callable[[Call, Answer, float], None]
READS = frozenset({"GET"})
_NOTHING = NoBody()


@dataclass(frozen=True, kw_only=True)
class Route:
    """A method on a path. `answers` are its successes by status; `refusals` are codes beyond those that follow from its
    path, its callers and its body."""

    method: str
    path: str
    summary: str
    handler: Handler
    body: type[Body]
    decode: Callable[[Mapping[bytes, bytes], bytes], Body]
    may: frozenset[May]
    answers: Mapping[int, type[View] | None]
    refusals: Mapping[int, tuple[str, ...]]
    observe: Observe | None
    queries: Mapping[str, str]
    """What may stand behind the `?`: each name with its meaning."""

    @property
    def has_body(self) -> bool:
        return self.method not in READS


def route(  # noqa: PLR0913, PLR0917 - a row of the table
    call: str,
    handler: Callable[[Call, B], Awaitable[Answer]],
    body: type[B],
    may: frozenset[May],
    answers: Mapping[int, type[View] | None],
    refusals: Mapping[int, tuple[str, ...]] | None = None,
    *,
    observe: Observe | None = None,
    queries: Mapping[str, str] | None = None,
) -> Route:
    """A route whose handler takes the body that is decoded for it. `call` is `METHOD /path`.

    The first line of the handler's docstring is its summary.
    """
    method, _, path = call.partition(" ")
    return Route(
        method=method,
        path=path,
        summary=(handler.__doc__ or "").splitlines()[0].rstrip("."),
        handler=handler,
        body=body,
        decode=decoder(body),
        may=may,
        answers=answers,
        refusals=refusals or {},
        observe=observe,
        queries=queries or {},
    )


class PathEndpoint:
    """All methods of one path, as an ASGI app."""

    def __init__(self, services: ApiServices, routes: Sequence[Route]) -> None:
        self._services = services
        self._by_method = {route.method: route for route in routes}
        if "GET" in self._by_method:
            self._by_method["HEAD"] = self._by_method["GET"]
        self._allowed = tuple(sorted(self._by_method))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = self._by_method.get(scope["method"])
        try:
            answer = await (self._refuse(scope) if found is None else self._answer(found, scope, receive))
        except ClientGone:
            return
        await send_answer(answer, scope, send)

    async def _refuse(self, scope: Scope) -> Answer:
        return problem(MethodNotAllowed(self._allowed), scope[REQUEST_ID_KEY])

    async def _answer(self, route: Route, scope: Scope, receive: Receive) -> Answer:
        clock = self._services.clock
        began_s = clock.monotonic_s()
        call = Call(scope, self._services, {})
        try:
            answer = await _handled(call, route, receive)
        except ClientGone:
            raise
        except Exception as error:  # noqa: BLE001 - every error has an answer; one that nobody foresaw is logged there
            answer = problem(error, call.request_id)
        if route.observe is not None:
            route.observe(call, answer, clock.monotonic_s() - began_s)
        return answer


async def _handled(call: Call, route: Route, receive: Receive) -> Answer:
    """Who calls comes first, then the bytes, then their signature, and only then what they say."""
    call.headers = headers_of(call.scope)
    admit(call, route.may)
    if not route.has_body:
        return await route.handler(call, _NOTHING)
    raw = await read_body(call.headers, call.scope, receive)
    if May.SIGNED in route.may:
        check_signature(call, raw)
    return await route.handler(call, route.decode(call.headers, raw))


async def nowhere(scope: Scope, receive: Receive, send: Send) -> None:
    """What no route matches."""
    del receive
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1000})
        return
    await send_answer(problem(NoSuchRoute(), scope[REQUEST_ID_KEY]), scope, send)
