"""Bearer keys: shown once, stored hashed, compared in constant time (design §5)."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from service.domain.errors import NotFound
from service.ports.clock import Clock
from service.ports.orders import ApiKey, SaleStore


class Role(StrEnum):
    STOREFRONT = "storefront"
    PAYMENTS = "payments"
    PARTICIPANT = "participant"
    VIEWER = "viewer"
    OPERATOR = "operator"


@dataclass(frozen=True, kw_only=True)
class Principal:
    """Whose key it is: `key_id` goes into logs and audit rows."""

    key_id: str
    role: Role


KEY_PREFIX = "dg"


class KeyService:
    """Keys of this process's view: refreshed by the same loop as the sale rows, so a new key works within a second, and
    a revoked one no longer."""

    def __init__(self, store: SaleStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._by_id: dict[str, ApiKey] = {}

    async def refresh(self) -> None:
        self._by_id = {key.id: key for key in await self._store.keys()}

    def authenticate(self, secret: str) -> Principal | None:
        """The principal of a presented key `dg_ID_SECRET`, or None."""
        parts = secret.split("_", 2)
        if len(parts) != 3 or parts[0] != KEY_PREFIX:  # noqa: PLR2004 - the three parts named above
            return None
        key = self._by_id.get(parts[1])
        stored = key.hash if key is not None else ""
        # Compared also where the id is unknown: the time says nothing about which ids exist.
        if not hmac.compare_digest(stored, _hash(secret)) or key is None:
            return None
        return Principal(key_id=key.id, role=Role(key.role))

    async def create(self, role: Role) -> tuple[str, str]:
        """(key id, secret). The secret is shown now and never again."""
        id_ = secrets.token_hex(4)
        secret = f"{KEY_PREFIX}_{id_}_{secrets.token_urlsafe(24)}"
        await self._store.add_key(
            ApiKey(id=id_, hash=_hash(secret), role=role.value, created_at_ms=self._clock.now_ms())
        )
        await self.refresh()
        return id_, secret

    async def list(self) -> Sequence[ApiKey]:
        """Every key that works, the oldest first."""
        return await self._store.keys()

    async def revoke(self, key_id: str, actor: str) -> None:
        """For good. NotFound where there is no such key."""
        if not await self._store.revoke_key(key_id, actor, self._clock.now_ms()):
            raise NotFound("key", key_id)
        await self.refresh()


def _hash(secret: str) -> str:
    """SHA-256 is enough for 192 random bits: there is nothing to guess."""
    return hashlib.sha256(secret.encode()).hexdigest()
