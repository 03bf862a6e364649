"""Consumes, processes and produces as a streams application (KIP-1071) with two members in one process.

A member sends heartbeats, and processes the source partitions of its active tasks, one transaction after another: the
outputs and the offset of the source partition are committed together, with the member's id and epoch. The members take
turns, so that a transaction is alone. A member that a response has told to give up a task first ends the transaction in
progress, and then stops claiming the task.

The journal is a file with the tasks that each response assigned, for the rule that no two members have one task in the
same epoch. It survives the death of the process.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import uuid
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from oncelog import Admin, Consumer, KafkaError, Producer, TopicPartition
from oncelog.config import ClientConfig
from oncelog.connection.pool import ConnectionPool
from oncelog.errors import AbortableError, ConnectionFailed
from oncelog.group_offsets import ConsumerGroupMetadata
from oncelog.metadata.coordinators import find_coordinator
from oncelog.producer.transaction import until_known
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.find_coordinator import CoordinatorType
from oncelog_protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    TaskIds,
)

MEMBERS: Final = 2
JOINING, LEAVING = 0, -1
SUBTOPOLOGY: Final = "0"
BEAT_SECONDS: Final = 0.1
REBALANCE_MS: Final = 5_000
GONE: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND})
"""Errors after which a member has no task any more, and joins again."""
HAS_TOPICS: Final = 0
"""Version of the heartbeat."""

Topology = StreamsGroupHeartbeatRequest.Topology
Work = Callable[[Producer[Any, Any], Sequence[Any]], Awaitable[None]]
"""Sends the outputs for some records; raises the exception of `aborts` if the transaction must be aborted."""


class Claim(NamedTuple):
    """A response has assigned a task to a member, in an epoch of the group."""

    task: int
    epoch: int
    member_id: str


class Journal:
    """The file with the claims of all processes of an application."""

    def __init__(self, application: str) -> None:
        self._path = Path(tempfile.gettempdir()) / f"{application}.tasks"

    def add(self, claims: Iterable[Claim]) -> None:
        with self._path.open("a") as file:
            file.write("".join(json.dumps(claim) + "\n" for claim in claims))

    def claims(self) -> list[Claim]:
        """Return all claims; the last line may be incomplete if its process was killed."""
        found = []
        for line in self._path.read_text().splitlines() if self._path.exists() else ():
            with suppress(ValueError):
                found.append(Claim(*json.loads(line)))
        return found

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)


def claim_problems(claims: Iterable[Claim]) -> list[str]:
    """Return the violations of the rule that no two members have one task in the same epoch, and of the rule that every
    member gets tasks. Pure.
    """
    holders: dict[tuple[int, int], set[str]] = defaultdict(set)
    for claim in claims:
        holders[claim.task, claim.epoch].add(claim.member_id)
    members = set().union(*holders.values())
    few = [f"only {len(members)} member has got tasks"] if 0 < len(members) < MEMBERS else []
    return few + [
        f"task {task} has {len(members)} members in epoch {epoch}"
        for (task, epoch), members in sorted(holders.items())
        if len(members) > 1
    ]


class Membership:
    """One member of the streams group: its epoch, the tasks that it claims, and its heartbeats."""

    def __init__(self, address: str, group: str, source: str, journal: Journal, common: dict[str, Any]) -> None:
        self.member_id = uuid.uuid4().hex
        self.epoch = JOINING
        self.assigned: frozenset[int] = frozenset()
        """The tasks of the last response that listed tasks."""
        self.joins = 0
        """The number of times that the member has joined: a task that it got before it joined again is not its own."""
        self.busy: int | None = None
        """The task whose transaction is in progress."""
        self._claimed: frozenset[int] = frozenset()
        self._group = group
        self._source = source
        self._journal = journal
        config = ClientConfig(bootstrap_servers=address, **common)
        self._pool = ConnectionPool(config)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._pool.close()

    async def beat_on(self) -> None:
        """Send one heartbeat after another, until this task is cancelled."""
        while True:
            with suppress(ConnectionFailed, TimeoutError):
                await self.beat()
            await asyncio.sleep(BEAT_SECONDS)

    async def beat(self) -> None:
        """Send a heartbeat, and believe the response. Raises KafkaError for an error that no member expects."""
        if self.epoch == JOINING:
            request = self._request(JOINING, active_tasks=[], standby_tasks=[], warmup_tasks=[])
            request.rebalance_timeout_ms, request.process_id, request.topology = (
                REBALANCE_MS, self.member_id, self._topology(),
            )  # fmt: skip
        else:
            self._claimed &= self.assigned | ({self.busy} if self.busy is not None else set())
            ids = [TaskIds(subtopology_id=SUBTOPOLOGY, partitions=sorted(self._claimed))] if self._claimed else []
            request = self._request(self.epoch, active_tasks=ids, standby_tasks=[], warmup_tasks=[])
        try:
            answer = await self._send(request)
        except KafkaError as error:
            if not error.retriable:
                raise
            return
        code = ErrorCode.of(answer.error_code)
        if code in GONE:
            self.epoch, self.assigned, self._claimed = JOINING, frozenset(), frozenset()
        elif not code:
            self._believe(request, answer)
        elif not KafkaError(code).retriable:
            raise KafkaError(code, answer.error_message or "")

    def _believe(self, request: StreamsGroupHeartbeatRequest, answer: StreamsGroupHeartbeatResponse) -> None:
        self.joins += request.member_epoch == JOINING
        self.epoch = answer.member_epoch
        if answer.active_tasks is None:
            return
        self.assigned = frozenset(number for ids in answer.active_tasks for number in ids.partitions)
        self._claimed |= self.assigned
        self._journal.add(Claim(task, self.epoch, self.member_id) for task in sorted(self.assigned))

    async def leave(self) -> None:
        """Leave the group, if its coordinator answers; otherwise the session expires."""
        with suppress(KafkaError, TimeoutError):
            await self._send(self._request(LEAVING))
        self.epoch, self.assigned, self._claimed = JOINING, frozenset(), frozenset()

    @property
    def metadata(self) -> ConsumerGroupMetadata:
        """The identity with which the member commits offsets in a transaction."""
        return ConsumerGroupMetadata(self._group, self.epoch, self.member_id, None)

    async def _send(self, request: StreamsGroupHeartbeatRequest) -> StreamsGroupHeartbeatResponse:
        coordinator = await find_coordinator(self._pool, self._group, CoordinatorType.GROUP, elsewhere=True)
        connection = await self._pool.connection(coordinator.node_id)
        return await connection.send(request, HAS_TOPICS)

    def _request(self, epoch: int, **tasks: list[TaskIds]) -> StreamsGroupHeartbeatRequest:
        return StreamsGroupHeartbeatRequest(
            group_id=self._group, member_id=self.member_id, member_epoch=epoch, endpoint_information_epoch=-1, **tasks
        )

    def _topology(self) -> Topology:
        subtopology = Topology.Subtopology(
            subtopology_id=SUBTOPOLOGY,
            source_topics=[self._source],
            source_topic_regex=[],
            state_changelog_topics=[],
            repartition_sink_topics=[],
            repartition_source_topics=[],
            copartition_groups=[],
        )
        return Topology(epoch=0, subtopologies=[subtopology])


class StreamsMember:
    """A member that processes its tasks, as one thread of a streams application does."""

    def __init__(
        self,
        membership: Membership,
        producer: Producer[Any, Any],
        consumer: Consumer[Any, Any],
        admin: Admin,
        turn: asyncio.Lock,
        start: asyncio.Barrier,
        aborts: type[Exception],
    ) -> None:
        self._membership = membership
        self._producer = producer
        self._consumer = consumer
        self._admin = admin
        self._turn = turn
        self._start = start
        self._aborts = aborts

    async def run(self, group: str, source: str, ends: Sequence[int], at_once: int, poll_ms: int, work: Work) -> None:
        """Process the member's tasks until the group's committed offsets are `ends`, one offset for each partition. No
        member begins before each member has a task.
        """
        beating = asyncio.create_task(self._membership.beat_on())
        has_begun = False
        try:
            while True:
                if beating.done():
                    beating.result()
                offsets = await self._admin.groups.offsets(group, require_stable=True)
                at = [
                    offsets[each].offset if each in offsets else 0
                    for each in (TopicPartition(source, index) for index in range(len(ends)))
                ]
                if at == list(ends):
                    return
                if not has_begun:
                    if self._membership.assigned:
                        await self._start.wait()
                        has_begun = True
                    else:
                        await asyncio.sleep(0.01)
                    continue
                for task in sorted(self._membership.assigned):
                    async with self._turn:
                        await self._process(group, TopicPartition(source, task), at_once, poll_ms, work)
                await asyncio.sleep(0.01)
        finally:
            beating.cancel()
            with suppress(asyncio.CancelledError):
                await beating
            await self._membership.leave()

    async def _process(self, group: str, where: TopicPartition, at_once: int, poll_ms: int, work: Work) -> None:
        """Run one transaction, if the task is still the member's and has records."""
        member = self._membership
        if where.partition not in member.assigned:
            return
        joins, member.busy = member.joins, where.partition
        try:
            offsets = await self._admin.groups.offsets(group, require_stable=True)
            begin = offsets[where].offset if where in offsets else 0
            self._consumer.assign([where])
            self._consumer.seek(where, begin)
            records = (await self._consumer.poll(poll_ms, at_once)).get(where)
            if records:
                await self._transact(where, records, joins, work)
        finally:
            member.busy = None

    async def _transact(self, where: TopicPartition, records: Sequence[Any], joins: int, work: Work) -> None:
        self._producer.begin_transaction()
        try:
            await work(self._producer, records)
            if self._membership.joins != joins or self._membership.epoch == JOINING:
                raise self._aborts  # another member may have the task
            await self._producer.send_offsets({where: records[-1].offset + 1}, self._membership.metadata)
            await until_known(self._producer.commit_transaction)
        except (AbortableError, self._aborts):
            await until_known(self._producer.abort_transaction)
