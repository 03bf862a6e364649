"""FindCoordinator (10): finds the broker that coordinates a group or a transactional id."""

from __future__ import annotations

from enum import IntEnum

from oncelog_protocol.schema import Request, array, int8, int16, int32, message, string, struct


class CoordinatorType(IntEnum):
    """The type of a key."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2
    """A share partition (from v6 on), whose key has the form "groupId:topicId:partition" (KIP-932)."""


@message(api_key=10, versions="0-6", flexible="3+")
class FindCoordinatorRequest(Request["FindCoordinatorResponse"]):
    """Find the coordinator of one key; from v4 on, of several keys.

    v1: key_type (in v0, every key is a group id).
    v3: flexible.
    v4: coordinator_keys replace key (KIP-699, T16).
    v5: the client understands TRANSACTION_ABORTABLE (KIP-890).
    v6: share groups (KIP-932).
    """

    key: str = string("0-3", default="")
    key_type: int = int8("1+", default=0)  # the number of a CoordinatorType
    coordinator_keys: list[str] = array("4+", of=string(), default_factory=list)


@message(api_key=10, versions="0-6", flexible="3+")
class FindCoordinatorResponse:
    """The response names the coordinator: the leader of the internal topic's partition to which the key is hashed
    (S30).

    v1: throttle_time_ms, error_message.
    v2: on a quota violation, the broker responds before it throttles the client.
    v3: flexible.
    v4: one entry per key in `coordinators`; the fields of a single coordinator are removed (KIP-699).
    v5: TRANSACTION_ABORTABLE is possible (KIP-890).

    Errors: COORDINATOR_NOT_AVAILABLE (try again), GROUP_AUTHORIZATION_FAILED, TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    INVALID_REQUEST (unknown key type).
    """

    throttle_time_ms: int = int32("1+", default=0)
    error_code: int = int16("0-3", default=0)
    error_message: str | None = string("1-3", nullable="1-3", default=None)
    node_id: int = int32("0-3", default=0)  # node id of the coordinator; -1 if there is an error
    host: str = string("0-3", default="")
    port: int = int32("0-3", default=0)
    coordinators: list[Coordinator] = array("4+", default_factory=list)

    @struct
    class Coordinator:
        key: str = string("4+")
        node_id: int = int32("4+")  # node id of the coordinator; -1 if there is an error
        host: str = string("4+")
        port: int = int32("4+")
        error_code: int = int16("4+")
        error_message: str | None = string("4+", nullable="4+", default=None)
