"""Adds leader hints to errors such as NOT_LEADER_OR_FOLLOWER (KIP-951). With a hint, the client sends its next request
to the leader immediately, without a back-off and a Metadata request.

A broker stops leading a partition when its cluster image has the new leader, so the broker can name the new leader. A
broker does not name itself while its session may have expired, or before its log is open, because the client would
retry immediately.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from oncelog_broker.metadata.model.image import NO_LEADER, Topic
from oncelog_broker.server.request.context import AnyContext
from oncelog_protocol.errors import ErrorCode

FIRST_PRODUCE_VERSION: Final = 10
FIRST_FETCH_VERSIONS: Final = {ErrorCode.NOT_LEADER_OR_FOLLOWER: 12, ErrorCode.FENCED_LEADER_EPOCH: 16}
"""Maps an error code to the first version of Fetch whose response has a leader hint beside this error. For
FENCED_LEADER_EPOCH the first version is v16, as in Kafka, which adds the endpoints. For NOT_LEADER_OR_FOLLOWER Kafka
sends hints from v16 on, but the field exists since v12, and the id alone is enough for a client that knows the
endpoints from its metadata, such as oncelog's consumer, whose highest version is 12.
"""
MAX_HINTS: Final = 1000
"""The maximum number of leader hints in one response, so that building them is quick. For further partitions, the
client requests the metadata.
"""


class LeaderHint(NamedTuple):
    leader_id: int
    leader_epoch: int


class Endpoint(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None


class LeaderHints:
    """The leader hints of one response."""

    __slots__ = ("_context", "_count", "_leaders")

    def __init__(self, context: AnyContext) -> None:
        self._context = context
        self._leaders: set[int] = set()
        self._count = 0

    def of(self, name: str, topic_id: bytes, index: int, *, by_id: bool, or_own: bool = False) -> LeaderHint | None:
        """Return the leader of the partition; None if it is unknown. `or_own`: whether the leader may be this
        broker."""
        services = self._context.services
        topic: Topic | None = services.image.topic_by_id(topic_id) if by_id else services.image.topic(name)
        state = None if topic is None else topic.partitions.get(index)
        if state is None or self._count == MAX_HINTS or state.leader not in services.image.brokers:
            return None
        if state.leader == NO_LEADER or (state.leader == services.node_id and not or_own):
            return None
        self._count += 1
        self._leaders.add(state.leader)
        return LeaderHint(state.leader, state.leader_epoch)

    def endpoints(self) -> Iterator[Endpoint]:
        """Yield the addresses of the named brokers on the listener of this request."""
        brokers, listener = self._context.services.image.brokers, self._context.connection.listener
        for broker_id in sorted(self._leaders):
            broker = brokers.get(broker_id)
            endpoint = None if broker is None else broker.endpoint(listener)
            if broker is not None and endpoint is not None:
                yield Endpoint(broker_id, endpoint.host, endpoint.port, broker.rack)
