"""What brokers say of consumers, as they write it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from service.adapters.rocketmq.remoting.consumers import QueueState, queue_states

BY_CPP = """{"mqTable":{{
   "brokerName" : "broker-a",
   "queueId" : 0,
   "topic" : "t1"
}:{
   "cachedMsgCount" : 0,
   "commitOffset" : "18446744073709551615",
   "droped" : false
}
,{
   "brokerName" : "broker-a",
   "queueId" : 7,
   "topic" : "%RETRY%g1"
}:{
   "cachedMsgCount" : 3,
   "cachedMsgMaxOffset" : "9",
   "commitOffset" : "42",
   "droped" : false
}
},"jstack":"","properties":{"PROP_CLIENT_VERSION":"V4_6_0"},"subscriptionSet":[{"subString":"*","topic":"t1"}]}
"""
BY_JAVA = (
    '{"mqTable":{{"brokerName":"b","queueId":1,"topic":"t"}:{"cachedMsgCount":0,"commitOffset":5,"locked":true},'
    '{"brokerName":"b","queueId":2,"topic":"t"}:{"commitOffset":-1}},"properties":{}}'
)


def test_queues_are_read_as_the_native_client_writes_them() -> None:
    """Its table is no JSON, and what is below 0 has lost its sign."""
    assert queue_states(BY_CPP) == [
        QueueState(broker="broker-a", topic="t1", queue=0, offset=None),
        QueueState(broker="broker-a", topic="%RETRY%g1", queue=7, offset=42),
    ]


def test_queues_are_read_as_a_java_client_writes_them() -> None:
    assert [(it.queue, it.offset) for it in queue_states(BY_JAVA)] == [(1, 5), (2, None)]


def test_a_client_without_a_queue_has_none() -> None:
    assert queue_states('{"mqTable":{},"properties":{}}') == []


@given(st.text(alphabet='{}[]":, \n0123456789brokerNamequeueIdtopiccommitOffset', max_size=400))
def test_whatever_a_client_says_is_borne(text: str) -> None:
    assert all(state.offset is None or state.offset >= 0 for state in queue_states(text))


@given(st.integers(0, len(BY_CPP)))
def test_a_table_that_ends_early_has_no_queue_that_is_not_there(length: int) -> None:
    assert set(queue_states(BY_CPP[:length])) <= {*queue_states(BY_CPP), *_shorter_offsets()}


def _shorter_offsets() -> list[QueueState]:
    """Cut within a number."""
    found = queue_states(BY_CPP)
    cut = [QueueState(broker=it.broker, topic=it.topic, queue=it.queue, offset=4) for it in found]
    digits = "18446744073709551615"
    return cut + [
        QueueState(broker=found[0].broker, topic=found[0].topic, queue=0, offset=int(digits[:size]))
        for size in range(1, len(digits))
    ]
