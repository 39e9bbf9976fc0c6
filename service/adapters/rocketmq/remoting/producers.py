"""One broker's producers: who of a group is connected, and how a half message ends that the broker asked about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from service.adapters.rocketmq.remoting.client import RemotingClient
from service.adapters.rocketmq.remoting.codes import RequestCode, ResponseCode
from service.adapters.rocketmq.remoting.frames import Request
from service.domain.check_back import Verdict
from service.domain.errors import BrokerUnavailable

ENDS = {Verdict.COMMIT: 8, Verdict.ROLLBACK: 12}
"""`commitOrRollback`. UNKNOWN is not said: the broker asks again by itself."""
NO_SUCH_GROUP = "not exist"
"""What the broker remarks where nobody of a group is connected."""


@dataclass(frozen=True, kw_only=True)
class HalfPlace:
    """Where a broker keeps a half message, as its question says: it writes a copy before each question, and asks about
    that one."""

    queue_offset: int
    commit_log_offset: int


class _Connection(msgspec.Struct, rename="camel"):
    client_id: str


class _Connections(msgspec.Struct, rename="camel"):
    connection_set: list[_Connection] = []


class BrokerProducers:
    """BrokerUnavailable and BrokerRefused as RemotingClient says them."""

    def __init__(self, client: RemotingClient, address: str) -> None:
        self._client = client
        self.address = address

    async def client_ids(self, group: str) -> Sequence[str]:
        """Whom the broker would ask."""
        answer = await self._client.call(
            self.address,
            Request(code=RequestCode.GET_PRODUCER_CONNECTION_LIST, fields={"producerGroup": group}),
            expected={ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR},
        )
        if answer.code != ResponseCode.SUCCESS:
            if NO_SUCH_GROUP in answer.remark:
                return []
            raise BrokerUnavailable(self.address, answer.remark or "it cannot say who is connected")
        try:
            return [it.client_id for it in msgspec.json.decode(answer.body, type=_Connections).connection_set]
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise BrokerUnavailable(self.address, f"its answer cannot be read: {error}") from error

    async def end(self, group: str, topic: str, unique_id: str, place: HalfPlace, verdict: Verdict) -> None:
        """The answer to a question. COMMIT or ROLLBACK."""
        fields = {
            "topic": topic,
            "producerGroup": group,
            "tranStateTableOffset": str(place.queue_offset),
            "commitLogOffset": str(place.commit_log_offset),
            "commitOrRollback": str(ENDS[verdict]),
            "fromTransactionCheck": "true",
            "msgId": unique_id,
            "transactionId": unique_id,
        }
        await self._client.call(self.address, Request(code=RequestCode.END_TRANSACTION, fields=fields))
