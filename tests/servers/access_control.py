"""RocketMQ's access control (ACL 2.0): a broker and proxy that know everybody by name, and users for them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from service.adapters.rocketmq.remoting.client import RemotingClient, RemotingOptions
from service.adapters.rocketmq.remoting.frames import Request
from service.adapters.rocketmq.remoting.signing import Credentials

CREATE_USER, CREATE_ACL = 3001, 3006
"""Request codes of an administrator."""
ADMIN = Credentials(access_key="admin", secret_key="admin-secret")

_AUTH = "org.apache.rocketmq.auth"
_BOTH = {
    "authenticationProvider": f"{_AUTH}.authentication.provider.DefaultAuthenticationProvider",
    "authorizationProvider": f"{_AUTH}.authorization.provider.DefaultAuthorizationProvider",
    "innerClientAuthenticationCredentials": json.dumps({"accessKey": ADMIN.access_key, "secretKey": ADMIN.secret_key}),
}
BROKER = {
    **_BOTH,
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "authenticationMetadataProvider": f"{_AUTH}.authentication.provider.LocalAuthenticationMetadataProvider",
    "authorizationMetadataProvider": f"{_AUTH}.authorization.provider.LocalAuthorizationMetadataProvider",
    "initAuthenticationUser": json.dumps({"username": ADMIN.access_key, "password": ADMIN.secret_key}),
}
"""Properties of the broker."""
PROXY: Mapping[str, object] = {
    **_BOTH,
    "authenticationEnabled": True,
    "authorizationEnabled": True,
    "authenticationMetadataProvider": "org.apache.rocketmq.proxy.auth.ProxyAuthenticationMetadataProvider",
    "authorizationMetadataProvider": "org.apache.rocketmq.proxy.auth.ProxyAuthorizationMetadataProvider",
}
"""Of the proxy, which asks the broker."""


async def create_user(broker: str, user: Credentials, allowed: Mapping[str, Sequence[str]]) -> None:
    """`allowed`: actions by resource, such as `Topic:dropgate-*`. None: it may sign in, and nothing else."""
    client = RemotingClient(RemotingOptions(credentials=ADMIN))
    name, subject = user.access_key, f"User:{user.access_key}"
    info = {"username": name, "password": user.secret_key, "userType": "Normal", "userStatus": "enable"}
    await client.call(broker, _request(CREATE_USER, {"username": name}, info))
    if allowed:
        entries = [
            {"resource": resource, "actions": list(actions), "sourceIps": [], "decision": "Allow"}
            for resource, actions in allowed.items()
        ]
        policies = {"subject": subject, "policies": [{"policyType": "Custom", "entries": entries}]}
        await client.call(broker, _request(CREATE_ACL, {"subject": subject}, policies))
    await client.close()


def _request(code: int, fields: Mapping[str, str], body: object) -> Request:
    return Request(code=code, fields=fields, body=json.dumps(body).encode())
