"""Sends requests over a connection to handlers that serve a few partitions, without a socket and without an entire
broker.

The test plays the followers: with `Partition.on_follower_fetch` it sets how far a follower has fetched.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from struct import pack, unpack_from
from types import SimpleNamespace
from typing import Any

from tests.support.storage import SMALL, open_log

from oncelog_broker.config.broker_keys import (
    FETCH_MAX_BYTES,
    GROUP_METADATA_MAX_BYTES,
    INTER_BROKER_LISTENER_NAME,
    REPLICA_SELECTOR_CLASS,
    TRANSACTION_TWO_PHASE_COMMIT_ENABLE,
)
from oncelog_broker.config.security_keys import SECURITY_INTER_BROKER_PROTOCOL
from oncelog_broker.coordinator.transaction.refused_sequences import RefusedSequences
from oncelog_broker.metadata.model.image import Broker, ClusterImage
from oncelog_broker.replication.partition import Partition
from oncelog_broker.replication.purgatory import DelayedFetch, NewsPace
from oncelog_broker.replication.throttle import Throttles
from oncelog_broker.runtime.clock import ManualClock
from oncelog_broker.runtime.loop_budget import LoopBudget
from oncelog_broker.runtime.slices import Slices
from oncelog_broker.runtime.tasks import Tasks
from oncelog_broker.server.dispatch.dispatcher import Dispatcher
from oncelog_broker.server.kept.fetch_sessions import FetchSessions
from oncelog_broker.server.kept.refused_batches import RefusedBatches
from oncelog_broker.server.net.connection import BrokerConnection
from oncelog_broker.server.net.connections import Connections
from oncelog_broker.server.net.limits import Limits
from oncelog_protocol.api import ApiKey, request_header_version, request_type, response_header_version, response_type
from oncelog_protocol.codec import codec
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.headers import RequestHeader, ResponseHeader
from oncelog_protocol.messages.produce import ProduceRequest

TOPIC = "orders"
LEADER, FOLLOWER = 1, 2
EPOCH = 7
"""The leader epoch that both brokers know."""


class Timers:
    """Replaces the broker's timers (`Deadlines`): a timer fires when the test calls `fire`."""

    def __init__(self) -> None:
        self.set: list[tuple[float, Any]] = []

    def after(self, seconds: float, callback: Any) -> None:
        self.set.append((seconds, callback))

    def unless_done(self, answer: Any, seconds: float, callback: Any) -> None:
        self.set.append((seconds, callback))

    def fire(self) -> None:
        """Fire all set timers."""
        timers, self.set = self.set, []
        for _, callback in timers:
            callback()


class Wire(asyncio.Transport):
    """The client's end of the connection, which collects the responses."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 5000)})
        self.bytes = b""
        self.aborted = False

    def write(self, data: Any) -> None:
        self.bytes += bytes(data)

    def writelines(self, list_of_data: Any) -> None:
        self.bytes += b"".join(list_of_data)

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def abort(self) -> None:
        self.aborted = True

    def close(self) -> None:
        """Close the connection; bytes written before are already sent."""


class Coordinator:
    """Replaces a transaction coordinator: every verification immediately gets the response that the transaction is
    open, or the error `code`.
    """

    verifies = True
    registration_seconds = registration_pause_seconds = 0.0

    def __init__(self) -> None:
        self.refused_sequences = RefusedSequences()
        self.code = ErrorCode.NONE

    def elsewhere(self, transactional_id: str) -> None:
        return None

    def epoch_of(self, transactional_id: str) -> int:
        return 0

    def verify(self, transactional_id: str, asking: Any, partitions: Any) -> Any:
        return dict.fromkeys(partitions, self.code)

    def add_partitions(self, transactional_id: str, asking: Any, partitions: Any, version: int) -> Any:
        return self.code

    def usual_transactions(self, transactional_id: str) -> UsualTransactions:
        return UsualTransactions(self)


class UsualTransactions:
    """Replaces the object by which the lane of Produce verifies a transaction, or adds a partition to it."""

    def __init__(self, coordinator: Coordinator) -> None:
        self.coordinator = coordinator

    def has_open(self, *_: Any) -> bool:
        return self.coordinator.code is ErrorCode.NONE

    def register(self, *_: Any) -> ErrorCode | None:
        return ErrorCode.NONE if self.coordinator.code is ErrorCode.NONE else None


class Client:
    """One connection. A client whose correlation ids count from 0."""

    def __init__(self, served: Served) -> None:
        self.wire = Wire()
        self.connection = BrokerConnection(served.dispatcher.handle, served.connections, "PLAINTEXT")
        self.connection.connection_made(self.wire)
        self._sent: list[tuple[ApiKey, int]] = []

    def send(self, *requests: Any, api: ApiKey = ApiKey.PRODUCE, version: int = 9) -> None:
        """Send all requests in one piece, as one read of the socket may return them."""
        self._receive(b"".join(self._frame(request, api, version) for request in requests))

    def send_in_parts(self, request: Any, *, api: ApiKey, version: int, cut: int = 0) -> None:
        """Send a frame that is larger than the connection's receive buffer. `cut` is the number of bytes that are left
        out at the frame's end.
        """
        frame = self._frame(request, api, version)
        data = pack(">i", len(frame) - 4 - cut) + frame[4 : len(frame) - cut]
        while data:
            data = data[self._receive(data) :]

    def _frame(self, request: Any, api: ApiKey, version: int) -> bytes:
        header = RequestHeader(
            request_api_key=api, request_api_version=version, correlation_id=len(self._sent), client_id="test"
        )
        body = codec(RequestHeader, request_header_version(api, version)).encode(header)
        body += codec(request_type(api), version).encode(request)
        self._sent.append((api, version))
        return pack(">i", len(body)) + body

    def _receive(self, data: bytes) -> int:
        """Return the number of bytes that the receive buffer accepted."""
        room = self.connection.get_buffer(-1)
        size = min(len(room), len(data))
        room[:size] = data[:size]
        self.connection.buffer_updated(size)
        return size

    def answers(self, position: int = 0) -> list[tuple[int, Any]]:
        """Return (correlation id, response) in the order of arrival, beginning at this position of the received
        bytes.
        """
        found = []
        while position < len(self.wire.bytes):
            (size,) = unpack_from(">i", self.wire.bytes, position)
            frame = self.wire.bytes[position + 4 : position + 4 + size]
            position += 4 + size
            (correlation_id,) = unpack_from(">i", frame)
            api, version = self._sent[correlation_id]
            _, start = codec(ResponseHeader, response_header_version(api, version)).decode_from(frame)
            found.append((correlation_id, codec(response_type(api), version).decode(frame, start)))
        return found

    def has_answers(self, count: int) -> bool:
        """Whether `count` responses have arrived."""
        position = 0
        for _ in range(count):
            if position >= len(self.wire.bytes):
                return False
            position += 4 + unpack_from(">i", self.wire.bytes, position)[0]
        return True

    async def answered(self, count: int) -> list[tuple[int, Any]]:
        """Wait until `count` responses have arrived, then return all responses as `answers` does."""
        async with asyncio.timeout(10):
            while not self.has_answers(count):  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0)
        return self.answers()


class Served:
    """Partitions of TOPIC, all led by LEADER, and the services that handle requests for them. `leave` closes the logs
    of the partitions.
    """

    def __init__(
        self, directory: Path, *, partitions: int = 1, clock: ManualClock | None = None, **log_config: Any
    ) -> None:
        self.news_pace = NewsPace()
        self.sync_requests: list[Partition] = []
        """The partitions whose records group commit should sync; in place of group commit, the test syncs the records.
        """
        self.may_lead = True
        """Whether this broker may still lead its partitions, which is so while no other broker can have been elected.
        """
        self.partitions = [
            Partition(
                TOPIC,
                bytes(16),
                index,
                open_log(directory / f"{TOPIC}-{index}", replace(SMALL, **log_config)),
                broker_id=LEADER,
                may_lead=lambda: self.may_lead,
                request_sync=self.sync_requests.append,
            )
            for index in range(partitions)
        ]
        self.clock, self.tasks, self.deadlines = clock or ManualClock(), Tasks(), Timers()
        self.joining: list[Partition] = []
        """The partitions whose ISR a caught-up follower may join."""
        self.waiting_followers: list[DelayedFetch] = []
        self.hears_leader = True
        """True while the leaders of partitions that this broker follows respond to fetches."""
        self.transactions: Any = SimpleNamespace(verifies=True)
        self.services: Any = SimpleNamespace(
            clock=self.clock,
            tasks=self.tasks,
            authorizer=None,
            slices=Slices(self.clock, self.tasks),
            deadlines=self.deadlines,
            replicas=self,
            fetch_sessions=FetchSessions(10),
            config={
                FETCH_MAX_BYTES: 1 << 20,
                GROUP_METADATA_MAX_BYTES: 1 << 20,
                TRANSACTION_TWO_PHASE_COMMIT_ENABLE: False,
                INTER_BROKER_LISTENER_NAME: None,
                SECURITY_INTER_BROKER_PROTOCOL: None,
                REPLICA_SELECTOR_CLASS: None,
            },
            throttles=Throttles(),
            node_id=LEADER,
            image=ClusterImage("", {broker: Broker(broker, EPOCH, ()) for broker in (LEADER, FOLLOWER)}),
            isr_keeper=SimpleNamespace(consider=self.joining.extend),
            refused_batches=RefusedBatches(),
            transactions=self.transactions,
        )
        limits = Limits(100, 100, 1 << 20, -1, -1, 600.0)
        self.connections = Connections(limits, LoopBudget(self.clock.monotonic))
        self.dispatcher = Dispatcher(self.services)

    def leader(self, topic: str, index: int) -> Partition:
        """Return the partition if this broker leads it. This method does not check whether the broker may still lead;
        the partition checks that.
        """
        if topic != TOPIC or index >= len(self.partitions):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if self.partitions[index].leader == FOLLOWER:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self.partitions[index]

    def replica(self, topic: str, index: int) -> Partition:
        return self.partitions[index]

    def followed(self, topic: str | bytes, index: int) -> Partition | None:
        return self.partitions[index] if self.hears_leader else None

    def leader_by_id(self, topic_id: bytes, index: int) -> Partition:
        return self.leader(TOPIC, index)

    led_by_name = leader
    led_by_id = leader_by_id

    def follower_waits(self, broker_id: int, fetch: DelayedFetch) -> None:
        assert broker_id == FOLLOWER
        self.waiting_followers.append(fetch)

    def awaits(self, broker_id: int) -> bool:
        return False

    def leave(self) -> None:
        for partition in self.partitions:
            partition.log.close()


def produce(records: bytes, *, acks: int = -1, transactional_id: str | None = None, index: int = 0) -> ProduceRequest:
    data = ProduceRequest.TopicProduceData.PartitionProduceData(index=index, records=records)
    topics = [ProduceRequest.TopicProduceData(name=TOPIC, partition_data=[data])]
    return ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=1000, topic_data=topics)
