"""RocketMQ's access control: a request carries its sender's key and an HMAC over its fields and body."""

from __future__ import annotations

import base64
import hashlib
import hmac
from dataclasses import dataclass, field, replace

from service.adapters.rocketmq.remoting.frames import Request


@dataclass(frozen=True, kw_only=True)
class Credentials:
    access_key: str
    secret_key: str = field(repr=False)


def signed(request: Request, credentials: Credentials) -> Request:
    """HMAC-SHA1 over the values of all fields in the order of their names, and the body: the broker's own rule."""
    fields = {**request.fields, "AccessKey": credentials.access_key}
    content = "".join(fields[name] for name in sorted(fields)).encode() + request.body
    digest = hmac.new(credentials.secret_key.encode(), content, hashlib.sha1).digest()
    return replace(request, fields={**fields, "Signature": base64.b64encode(digest).decode()})
