"""One broker's share partitions with real logs: members send ShareFetch and ShareAcknowledge requests to the handlers,
without a connection. The share coordinator is one state machine. The test can replace the share coordinator's responses
with errors, or delay the responses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.support.handlers import LISTENER, asked, image_with, topic_id
from tests.support.hosts import host_of
from tests.support.storage import SMALL, make_batch, open_log

from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.coordinator.share.share_key import ShareKey
from oncelog_broker.coordinator.share.share_state import ShareState
from oncelog_broker.coordinator.share.share_state_machine import ShareStateMachine, StateWrite
from oncelog_broker.metadata.model.image import ClusterImage
from oncelog_broker.replication.partition import Partition
from oncelog_broker.runtime.answers import settled
from oncelog_broker.runtime.clock import ManualClock
from oncelog_broker.runtime.slices import Slices
from oncelog_broker.runtime.tasks import Tasks
from oncelog_broker.server.shares import share_acknowledge, share_fetch
from oncelog_broker.sharing.share_partitions import SharePartitions
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from oncelog_protocol.messages.share_fetch import AcknowledgeType, ShareFetchRequest, ShareFetchResponse
from oncelog_protocol.records.control import ControlType, EndTransactionMarker

TOPIC = "orders"
TOPIC_ID = topic_id(TOPIC)
GROUP = "g"
SURELY_SECONDS = 10


async def turns(count: int = 20) -> None:
    """Run this many turns of the event loop, for work that needs no timer."""
    for _ in range(count):
        await asyncio.sleep(0)


class StateCalls:
    """Replaces `ShareStateCalls`. `errors` are the responses to the next writes. While `held` is set, the coordinator's
    writes wait; while `held_reads` is set, its responses to reads wait.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.machine = ShareStateMachine(now_ms, lambda *_: True)
        self.errors: list[KafkaError | None] = []
        self.held: asyncio.Event | None = None
        self.held_reads: asyncio.Event | None = None
        self.writes: list[StateWrite] = []
        self.logged = 0

    def _carry_out(self, operation: Callable[[], Any]) -> Any:
        try:
            effects = operation()
        except KafkaError as error:
            return error
        for record in effects.records:
            self.machine.replay(record, self.logged, -1)
            self.logged += 1
        return effects.replies[0][1]

    def begin(self, key: ShareKey, state_epoch: int = 1, start: int = 0) -> None:
        self._carry_out(lambda: self.machine.initialize(key, state_epoch, start, None))

    async def read(self, key: ShareKey, leader_epoch: int) -> ShareState | KafkaError:
        found = self._carry_out(lambda: self.machine.read(key, leader_epoch, None))
        if self.held_reads is not None:
            await self.held_reads.wait()
        return found  # type: ignore[no-any-return]

    async def write(self, key: ShareKey, write: StateWrite) -> KafkaError | None:
        if self.held is not None:
            await self.held.wait()
        self.writes.append(write)
        error = self.errors.pop(0) if self.errors else None
        return error or self._carry_out(lambda: self.machine.write(key, write, None))


class ShareWorld:
    """A topic of two partitions that broker 1 leads in leader epoch 3. The share partitions of group "g" start at
    offset 0.
    """

    def __init__(self, directory: Path, **settings: str) -> None:
        self.clock, self.tasks = ManualClock(), Tasks()
        self.wake_ups: list[tuple[float, Callable[[], None]]] = []
        self.host = host_of(self.clock, self.tasks, deadlines=self)
        self.config = BrokerConfig.of({})
        self.overrides = dict(settings)
        self.image = self._image()
        self.calls = StateCalls(self.clock.now_ms)
        self.partitions: dict[int, Partition] = {}
        self.leads = True
        for index in (0, 1):
            log = open_log(directory / f"{TOPIC}-{index}", SMALL, clock=self.clock)
            self.partitions[index] = Partition(TOPIC, TOPIC_ID, index, log, broker_id=1)
            self.partitions[index].lead(3, (1,))
            self.calls.begin(self.key(index))
        self.shares = SharePartitions(lambda: self.config, self.calls, self.host)  # type: ignore[arg-type]
        self.shares.on_image(self.image)

    def _image(self, leader: int = 1) -> ClusterImage:
        return image_with(TOPIC, leader=leader).with_group_configs({GROUP: self.overrides})

    def key(self, index: int = 0) -> ShareKey:
        return ShareKey(GROUP, TOPIC_ID, index)

    def set(self, name: str, value: str) -> None:
        self.overrides = {**self.overrides, name: value}
        self.image = self._image()
        self.shares.on_image(self.image)

    async def close(self) -> None:
        await self.tasks.close()

    # --- deadlines and replicas

    def after(self, seconds: float, callback: Callable[[], None]) -> None:
        self.wake_ups.append((self.clock.monotonic() + seconds, callback))

    def unless_done(self, answer: Any, seconds: float, callback: Callable[[], None]) -> None:
        self.after(seconds, callback)

    def advance(self, seconds: float) -> None:
        self.clock.advance_ms(int(seconds * 1000 + 0.5))
        now = self.clock.monotonic()
        due = [callback for at, callback in self.wake_ups if at <= now]
        self.wake_ups = [entry for entry in self.wake_ups if entry[0] > now]
        for callback in due:
            callback()

    def leader_by_id(self, topic_id: bytes, index: int) -> Partition:
        if topic_id != TOPIC_ID:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        if not self.leads or self.partitions[index].is_resigned:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self.partitions[index]

    def resign(self) -> None:
        """Let broker 2 become the leader of both partitions."""
        self.image = self._image(leader=2)
        for partition in self.partitions.values():
            partition.resign()
        self.shares.on_image(self.image)

    # --- records

    def append(self, *values: bytes, index: int = 0, **options: Any) -> None:
        """One batch."""
        records = make_batch(*values, **options)
        self.partitions[index].append(memoryview(records), required_acks=1)

    def end_transaction(self, producer_id: int, *, commits: bool, index: int = 0) -> None:
        kind = ControlType.COMMIT if commits else ControlType.ABORT
        marker = EndTransactionMarker(kind, 0)
        self.partitions[index].append_marker(marker, producer_id=producer_id, producer_epoch=0)

    def context(self, api: ApiKey, connection: Any, *, version: int = 2, refused: Collection[Any] = ()) -> Any:
        context = asked(
            api,
            version,
            refused=refused,
            clock=self.clock,
            tasks=self.tasks,
            slices=Slices(self.clock, self.tasks),
            deadlines=self,
            image=self.image,
            replicas=self,
            share_partitions=self.shares,
            config=self.config,
        )
        context.connection = connection
        return context

    def member(self, member_id: str = "m1") -> Member:
        return Member(self, member_id)


class Member:
    """A group member with one share session. `got` are the offsets of the member's last fetch, by partition."""

    def __init__(self, world: ShareWorld, member_id: str) -> None:
        self.world = world
        self.member_id = member_id
        self.epoch = 0
        self.connection: Any = SimpleNamespace(
            listener=LISTENER, client_host="127.0.0.1", copied_answer_bytes=1 << 20, at_end={}
        )

    def start(
        self,
        *,
        partitions: Collection[int] = (0,),
        acks: Mapping[int, Any] = {},
        wait_ms: int = 0,
        epoch: int | None = None,
        refused: Collection[Any] = (),
        version: int = 2,
        topic_id: bytes = TOPIC_ID,
        **said: Any,
    ) -> Any:
        """Send a ShareFetch request; return the handler's response, or a future of the response."""
        topic = ShareFetchRequest.FetchTopic
        request = ShareFetchRequest(
            group_id=GROUP,
            member_id=self.member_id,
            share_session_epoch=self.epoch if epoch is None else epoch,
            max_wait_ms=wait_ms,
            min_bytes=said.pop("min_bytes", 1),
            max_records=said.pop("max_records", 500),
            batch_size=said.pop("batch_size", 500),
            topics=[
                topic(
                    topic_id=topic_id,
                    partitions=[
                        topic.FetchPartition(
                            partition_index=index,
                            acknowledgement_batches=[
                                topic.FetchPartition.AcknowledgementBatch(
                                    first_offset=first, last_offset=last, acknowledge_types=list(types)
                                )
                                for first, last, *types in acks.get(index, ())
                            ],
                        )
                        for index in sorted({*partitions, *acks})
                    ],
                )
            ],
            forgotten_topics_data=said.pop("forgotten_topics_data", []),
            **said,
        )
        if epoch is None:
            self.epoch += 1
        context = self.world.context(ApiKey.SHARE_FETCH, self.connection, version=version, refused=refused)
        return share_fetch.handle(request, context)

    async def fetch(self, **said: Any) -> ShareFetchResponse:
        async with asyncio.timeout(SURELY_SECONDS):
            response: ShareFetchResponse = await settled(self.start(**said))
        return response

    async def acquired(self, **said: Any) -> list[tuple[int, int, int]]:
        """Return (first offset, last offset, delivery count) of each batch acquired from the response's first
        partition.
        """
        response = await self.fetch(**said)
        assert not response.error_code, response.error_message
        return [
            (each.first_offset, each.last_offset, each.delivery_count)
            for topic in response.responses
            for partition in topic.partitions
            for each in partition.acquired_records
        ]

    async def acknowledge(
        self, *batches: tuple[int, ...], index: int = 0, epoch: int | None = None, **said: Any
    ) -> ShareAcknowledgeResponse:
        """Send a ShareAcknowledge request; each batch is (first offset, last offset, acknowledge types...)."""
        topic = ShareAcknowledgeRequest.AcknowledgeTopic
        refused = said.pop("refused", ())
        request = ShareAcknowledgeRequest(
            group_id=GROUP,
            member_id=self.member_id,
            share_session_epoch=self.epoch if epoch is None else epoch,
            topics=[
                topic(
                    topic_id=TOPIC_ID,
                    partitions=[
                        topic.AcknowledgePartition(
                            partition_index=index,
                            acknowledgement_batches=[
                                topic.AcknowledgePartition.AcknowledgementBatch(
                                    first_offset=first, last_offset=last, acknowledge_types=list(types)
                                )
                                for first, last, *types in batches
                            ],
                        )
                    ],
                )
            ],
            **said,
        )
        if epoch is None:
            self.epoch += 1
        context = self.world.context(ApiKey.SHARE_ACKNOWLEDGE, self.connection, refused=refused)
        async with asyncio.timeout(SURELY_SECONDS):
            response: ShareAcknowledgeResponse = await settled(share_acknowledge.handle(request, context))
        return response

    async def accept(self, first: int, last: int) -> ErrorCode:
        response = await self.acknowledge((first, last, AcknowledgeType.ACCEPT))
        return ack_code(response)

    def disconnect(self) -> None:
        for call in self.connection.at_end.values():
            call()


def ack_code(response: ShareAcknowledgeResponse) -> ErrorCode:
    """Return the error code of the entire response or, if there is none, that of its only partition."""
    if response.error_code:
        return ErrorCode(response.error_code)
    ((partition,),) = (topic.partitions for topic in response.responses)
    return ErrorCode(partition.error_code)
