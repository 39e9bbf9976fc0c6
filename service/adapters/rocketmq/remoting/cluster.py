"""All brokers behind the name servers, as an operator sees them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from service.adapters.rocketmq.remoting.admin import BrokerAdmin
from service.adapters.rocketmq.remoting.client import RemotingClient
from service.adapters.rocketmq.remoting.messages import StoredMessage, parse_physical_id
from service.adapters.rocketmq.remoting.queues import BrokerQueues
from service.adapters.rocketmq.remoting.routes import NameServers
from service.domain.errors import BrokerRefused, BrokerUnavailable

DISCARDED_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"


class Cluster:
    def __init__(self, client: RemotingClient, name_servers: str) -> None:
        self._client = client
        self.name_servers = NameServers(client, name_servers)

    async def brokers(self) -> Sequence[BrokerAdmin]:
        """Of every master, sorted by address."""
        return [BrokerAdmin(self._client, address) for address in await self.name_servers.masters()]

    async def lag(self, group: str, topic: str) -> int:
        """Over all brokers that have the topic."""
        parts = await self.name_servers.route(topic)
        queues = [BrokerQueues(self._client, part.address).lag(group, topic, part.read_queues) for part in parts]
        return sum(await asyncio.gather(*queues))

    async def view(self, physical_id: str) -> StoredMessage | None:
        """BrokerRefused: this is no id of a message of these brokers."""
        queues, offset = await self._place(physical_id)
        return await queues.view(offset)

    async def resume_check(self, physical_id: str) -> StoredMessage:
        """Ask about a discarded half message again, from question 1; returns it. Whether it commits is seen later.

        BrokerRefused: there is no discarded half message of this id, and nothing was done."""
        queues, offset = await self._place(physical_id)
        message = await queues.view(offset)
        if message is None or message.topic != DISCARDED_TOPIC:
            raise BrokerRefused(queues.address, f"{physical_id} is not the id of a discarded half message")
        await queues.resume_check(physical_id)
        return message

    async def holder(self, addresses: Sequence[str], offset: int, is_it: Callable[[StoredMessage], bool]) -> str | None:
        """Which of these brokers has the message at this place of its commit log: two may have messages at the same
        places. One alone is not asked. None: none that answers has it."""
        if len(addresses) == 1:
            return addresses[0]
        for address in addresses:
            with suppress(BrokerUnavailable):
                found = await BrokerQueues(self._client, address).view(offset)
                if found is not None and is_it(found):
                    return address
        return None

    async def _place(self, physical_id: str) -> tuple[BrokerQueues, int]:
        """An id names a host: only those that the name servers know are asked."""
        try:
            address, offset = parse_physical_id(physical_id)
        except ValueError as error:
            raise BrokerRefused("broker", str(error)) from error
        if address not in await self.name_servers.masters():
            raise BrokerRefused(address, f"{physical_id} names a broker that the name servers do not know")
        return BrokerQueues(self._client, address), offset
