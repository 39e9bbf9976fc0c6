"""OpenAPI 3.1 from the table of routes and the structs that decode and encode: nothing to keep in step by hand."""

from __future__ import annotations

import re
from collections.abc import Sequence
from http import HTTPStatus

import msgspec

from service.api.auth import OPEN, May
from service.api.bodies import NoBody
from service.api.problems import WORDS
from service.api.routing import Route

Json = dict[str, object]

_PARAMETER = re.compile(r"{(\w+)}")
_BY_CALLER: dict[int, tuple[str, ...]] = {401: ("unauthenticated",), 403: ("forbidden",)}
_BY_SIGNATURE: dict[int, tuple[str, ...]] = {401: ("invalid_signature",)}
_BY_BODY: dict[int, tuple[str, ...]] = {
    400: ("malformed_request",),
    408: ("request_timeout",),
    413: ("body_too_large",),
    415: ("unsupported_media_type",),
    422: ("invalid_request",),
}
_BY_SERVICES: dict[int, tuple[str, ...]] = {500: ("internal_error",), 503: ("unavailable",)}

PROBLEM: Json = {
    "type": "object",
    "required": ["type", "title", "status", "detail", "code", "request_id"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "What to do about it."},
        "code": {
            "type": "string",
            "description": "Stable. " + ", ".join(f"`{code}`" for code in sorted(WORDS)),
        },
        "request_id": {"type": "string", "description": "The same as the header Dropgate-Request-Id."},
        "param": {"type": "string", "description": "The field or header that is wrong."},
        "reservation_id": {"type": "string", "description": "The reservation that it is about."},
        "final": {
            "type": "boolean",
            "description": "Whether asking again can change the answer: false, it can.",
        },
        "missing": {"type": "array", "items": {"type": "string"}, "description": "What a process waits for."},
    },
}

SECURITY: Json = {
    "key": {
        "type": "http",
        "scheme": "bearer",
        "description": "A key of `dropgate key create`; x-callers has its role.",
    },
    "buyer": {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "JWT",
        "description": "HS256; `sub` is the buyer.",
    },
    "signature": {
        "type": "apiKey",
        "in": "header",
        "name": "Dropgate-Signature",
        "description": "t=…,v1=HMAC-SHA256(t.body)",
    },
}


def document(routes: Sequence[Route]) -> Json:
    paths: dict[str, Json] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Dropgate",
            "version": "1",
            "description": "Times are RFC 3339 in UTC, money is in minor units, ids are strings.",
        },
        "paths": paths,
        "components": {"schemas": {**_schemas(routes)[1], "Problem": PROBLEM}, "securitySchemes": SECURITY},
    }


def refusals(route: Route) -> dict[int, list[str]]:
    """Every status that is not a success, with its codes: those of its caller, path and body, and its own."""
    found: dict[int, list[str]] = {}
    for table in (*_tables(route), route.refusals):
        for status, codes in table.items():
            known = found.setdefault(status, [])
            known += [code for code in codes if code not in known]
    return dict(sorted(found.items()))


def _tables(route: Route) -> list[dict[int, tuple[str, ...]]]:
    names = _PARAMETER.findall(route.path)
    tables = [_BY_SERVICES] if route.path.startswith(("/v1", "/admin")) else []
    tables += [{404: tuple(f"{name}_not_found" for name in names)}] if names else []
    tables += [] if route.may & OPEN else [_BY_CALLER]
    tables += [_BY_SIGNATURE] if May.SIGNED in route.may else []
    tables += [_BY_BODY] if route.has_body else []
    tables += [{422: ("invalid_request",)}] if route.queries else []
    return tables


def _operation(route: Route) -> Json:
    operation: Json = {
        "operationId": route.handler.__name__.strip("_"),
        "summary": route.summary,
        "x-callers": sorted(route.may),
        "security": _security(route),
        "parameters": _parameters(route),
        "responses": {**_successes(route), **_problems(route)},
    }
    if route.has_body and route.body is not NoBody:
        required = any(field.required for field in msgspec.structs.fields(route.body))
        operation["requestBody"] = {"required": required, "content": _content("application/json", route.body)}
    return operation


def _security(route: Route) -> list[Json]:
    if May.ANYONE in route.may:
        return []
    if May.SIGNED in route.may:
        return [{"signature": []}]
    schemes: list[Json] = [{"key": []}]
    return [*schemes, {"buyer": []}] if May.BUYER in route.may else schemes


def _parameters(route: Route) -> list[Json]:
    found: list[Json] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _PARAMETER.findall(route.path)
    ]
    for name, meaning in route.queries.items():
        found.append({"name": name, "in": "query", "schema": {"type": "string"}, "description": meaning})
    if route.observe is not None:
        schema = {"type": "string", "minLength": 1, "maxLength": 255}
        found.append({"name": "Idempotency-Key", "in": "header", "required": False, "schema": schema})
    return found


def _successes(route: Route) -> Json:
    found: Json = {}
    for status, view in route.answers.items():
        response: Json = {"description": HTTPStatus(status).phrase}
        if view is not None:
            response["content"] = _content("application/json", view)
        found[str(status)] = response
    return found


def _problems(route: Route) -> Json:
    content = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {
        str(status): {"description": ", ".join(f"`{code}`" for code in codes), "content": content}
        for status, codes in refusals(route).items()
    }


def _content(media_type: str, kind: type[msgspec.Struct]) -> Json:
    return {media_type: {"schema": {"$ref": f"#/components/schemas/{kind.__name__}"}}}


def _schemas(routes: Sequence[Route]) -> tuple[object, dict[str, object]]:
    kinds = {route.body for route in routes if route.body is not NoBody}
    views = {view for route in routes for view in route.answers.values() if view is not None}
    ordered = sorted(kinds | views, key=lambda kind: kind.__name__)
    schemas, components = msgspec.json.schema_components(ordered, ref_template="#/components/schemas/{name}")
    return schemas, dict(components)
