from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from tests.unit.api.fakes import World


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
async def client(world: World) -> AsyncIterator[httpx.AsyncClient]:
    async with world.client() as client:
        yield client
