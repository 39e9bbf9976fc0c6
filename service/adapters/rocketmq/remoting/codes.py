"""The numbers of RocketMQ's protocol that are used here."""

from __future__ import annotations

from enum import IntEnum


class RequestCode(IntEnum):
    PULL_MESSAGE = 11
    QUERY_CONSUMER_OFFSET = 14
    UPDATE_CONSUMER_OFFSET = 15
    UPDATE_AND_CREATE_TOPIC = 17
    GET_ALL_TOPIC_CONFIG = 21
    GET_BROKER_CONFIG = 26
    GET_MAX_OFFSET = 30
    GET_MIN_OFFSET = 31
    VIEW_MESSAGE_BY_ID = 33
    UNREGISTER_CLIENT = 35
    CONSUMER_SEND_MSG_BACK = 36
    END_TRANSACTION = 37
    GET_ROUTE_BY_TOPIC = 105
    GET_CLUSTER_INFO = 106
    UPDATE_AND_CREATE_GROUP = 200
    GET_ALL_GROUP_CONFIG = 201
    GET_CONSUMER_CONNECTION_LIST = 203
    GET_PRODUCER_CONNECTION_LIST = 204
    GET_CONSUMER_RUNNING_INFO = 307
    RESUME_CHECK_HALF_MESSAGE = 323


class ResponseCode(IntEnum):
    SUCCESS = 0
    SYSTEM_ERROR = 1
    SYSTEM_BUSY = 2
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12
    SERVICE_NOT_AVAILABLE = 14
    TOPIC_NOT_EXIST = 17
    PULL_NOT_FOUND = 19
    PULL_RETRY_IMMEDIATELY = 20
    PULL_OFFSET_MOVED = 21
    QUERY_NOT_FOUND = 22
    GROUP_NOT_EXIST = 26
    CONSUMER_NOT_ONLINE = 206
    FLOW_CONTROL = 215
    GO_AWAY = 1500


TRANSIENT = frozenset(
    {
        ResponseCode.SYSTEM_ERROR,  # says everything from a bad disk to a null pointer
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.FLOW_CONTROL,
        ResponseCode.GO_AWAY,
    }
)
"""Asking again may help. Every other answer than success is a refusal, unless the question expects it."""
