"""Keys as the processes of a fleet see them: a new one works, a revoked one stops, with their next look at the rows."""

from __future__ import annotations

import pytest

from service.adapters.system_clock import SystemClock
from service.core.directory import REFRESH_S
from service.core.keys import KeyService, Role
from service.domain.errors import NotFound
from tests.fixtures.sql import Stores


async def test_a_revoked_key_stops_in_every_process_with_its_next_look(rivals: tuple[Stores, Stores]) -> None:
    here, there = [KeyService(stores.sales, SystemClock()) for stores in rivals]
    id_, secret = await here.create(Role.OPERATOR)
    _, other = await here.create(Role.VIEWER)
    assert there.authenticate(secret) is None
    await there.refresh()
    principal = there.authenticate(secret)
    assert principal is not None
    assert (principal.key_id, principal.role) == (id_, Role.OPERATOR)

    await here.revoke(id_, "cli:anna")
    assert here.authenticate(secret) is None
    await there.refresh()
    assert there.authenticate(secret) is None
    assert there.authenticate(other) is not None
    assert REFRESH_S < 1, "each process looks that often"
    with pytest.raises(NotFound):
        await here.revoke(id_, "cli:anna")


async def test_what_is_listed_holds_no_secret(rivals: tuple[Stores, Stores]) -> None:
    keys = KeyService(rivals[0].sales, SystemClock())
    id_, secret = await keys.create(Role.PAYMENTS)
    (listed,) = await keys.list()
    assert (listed.id, listed.role) == (id_, "payments")
    assert secret not in str(listed)
    assert secret.rpartition("_")[2] not in str(listed)
