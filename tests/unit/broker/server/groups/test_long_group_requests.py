"""Requests with thousands of partitions or members of one group are processed in steps and get one response."""

from __future__ import annotations

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from oncelog_broker.coordinator.group.config import GroupConfig
from oncelog_broker.coordinator.group.machine import GroupMachine
from oncelog_broker.replication.verification_guards import VerificationGuards
from oncelog_broker.runtime.answers import settled
from oncelog_broker.runtime.clock import ManualClock
from oncelog_broker.runtime.slices import Slices
from oncelog_broker.runtime.steps import Steps, run_steps
from oncelog_broker.runtime.tasks import Tasks
from oncelog_broker.server.groups import leave_group, offset_fetch
from oncelog_broker.server.groups.leave_group import MEMBERS_PER_STEP
from oncelog_broker.server.request.context import RequestContext
from oncelog_broker.server.request.duplicate_names import TOPICS_PER_STEP
from oncelog_broker.server.request.request_chunks import PARTITIONS_PER_PART, joined, parts
from oncelog_broker.server.transactions import add_partitions_to_txn, txn_offset_commit
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from oncelog_protocol.messages.leave_group import LeaveGroupRequest
from oncelog_protocol.messages.offset_fetch import OffsetFetchRequest
from oncelog_protocol.messages.txn_offset_commit import TxnOffsetCommitRequest

MANY = 4 * PARTITIONS_PER_PART + 1
PRODUCER_ID, EPOCH = 7, 0
TOPIC_ID = bytes(range(16))


class CountedSlices(Slices):
    """Counts the steps of each piece of work; other work may run between two steps."""

    def __init__(self) -> None:
        super().__init__(ManualClock(), Tasks())
        self.steps: list[int] = []

    def run(self, steps: Steps[Any], **options: Any) -> Any:
        return super().run(self._counted(steps), **options)

    def _counted(self, steps: Steps[Any]) -> Steps[Any]:
        at = len(self.steps)
        self.steps.append(0)
        while True:
            try:
                job = next(steps)
            except StopIteration as end:
                return end.value
            self.steps[at] += 1
            yield job


class Runtime:
    """One group machine that replays records immediately after they are logged. `sizes` is the number of partitions or
    members in each step.
    """

    def __init__(self) -> None:
        self.machine = GroupMachine(GroupConfig(), lambda: 1, lambda: "id")
        self.partition = SimpleNamespace(
            topic="__consumer_offsets", index=0, guards=VerificationGuards(), log=SimpleNamespace()
        )
        self.partition.log.has_open_transaction = lambda *_: False
        self.partition.log.producer_state = SimpleNamespace(coordinator_epoch=lambda _: -1)
        self.sizes: list[int] = []
        self.after_step: Any = lambda: None
        self.refusal: KafkaError | None = None

    def shard(self, key: str) -> Any:
        return self

    def write(self, key: str, operation: Any, failed: Any) -> Any:
        try:
            effects = operation(self.machine, None)
        except KafkaError as error:
            return failed(error)
        for record in effects.records:
            self.machine.replay(record, 0, -1 if effects.producer is None else effects.producer[0])
        ((_, response),) = effects.replies
        self.sizes.append(size_of(response))
        self.after_step()
        return response

    def read(self, key: str, query: Any, failed: Any) -> Any:
        if self.refusal is not None:
            return failed(self.refusal)
        response = query(self.machine)
        self.sizes.append(size_of(response))
        return response


def size_of(response: Any) -> int:
    """Return the number of partitions or members in a response."""
    if isinstance(response, list):
        return 0
    if hasattr(response, "members"):
        return len(response.members)
    return sum(len(topic.partitions) for topic in response.topics)


class Coordinator:
    """Responds with `error`, and counts the requests."""

    verifies = True
    registration_seconds = registration_pause_seconds = 0.0

    def __init__(self) -> None:
        self.error = ErrorCode.NONE
        self.asked: list[int] = []

    def add_partitions(self, transactional_id: str, asking: Any, partitions: Any, version: int) -> ErrorCode:
        if isinstance(self.error, Exception):
            raise self.error
        self.asked.append(len(list(partitions)))
        return self.error

    def elsewhere(self, transactional_id: str) -> None:
        """Return None, because this broker coordinates all transactional ids."""

    def epoch_of(self, transactional_id: str) -> int:
        return 0


@pytest.fixture
def runtime() -> Runtime:
    return Runtime()


@pytest.fixture
def services(runtime: Runtime) -> Any:
    return SimpleNamespace(
        authorizer=None,
        image=SimpleNamespace(
            has_partition=lambda topic, partition: topic != "gone",
            leader_of=lambda topic, partition: None if topic == "gone" else 1,
            topic=lambda name: (
                None if name == "gone" else SimpleNamespace(name=name, topic_id=TOPIC_ID, partitions=range(MANY + 1))
            ),
            topic_by_id=lambda topic_id: SimpleNamespace(name="a") if topic_id == TOPIC_ID else None,
        ),
        groups=SimpleNamespace(runtime=runtime),
        slices=CountedSlices(),
        transactions=Coordinator(),
        deadlines=None,
    )


def context_of(services: Any, api_key: int, version: int) -> Any:
    return RequestContext(services, None, api_key, version, 0, None)  # type: ignore[arg-type]


# --- parts


def test_each_chunk_has_a_bounded_number_of_partitions() -> None:
    topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
    topics = [topic(name=str(n), partitions=[None] * size) for n, size in enumerate((0, 3, 1200, 0, 1))]  # type: ignore[list-item]
    cut = list(parts(topics))
    assert max(sum(len(topic.partitions) or 1 for topic in part) for part in cut) == PARTITIONS_PER_PART
    whole = run_steps(joined([list(part) for part in cut]))
    assert [(topic.name, len(topic.partitions)) for topic in whole] == [
        ("0", 0),
        ("1", 3),
        ("2", 1200),
        ("3", 0),
        ("4", 1),
    ]


# --- TxnOffsetCommit


def commit(*topics: tuple[str, int]) -> TxnOffsetCommitRequest:
    topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
    return TxnOffsetCommitRequest(
        transactional_id="txn",
        group_id="g",
        producer_id=PRODUCER_ID,
        producer_epoch=EPOCH,
        topics=[
            topic(
                name=name,
                partitions=[
                    topic.TxnOffsetCommitRequestPartition(
                        partition_index=index, committed_offset=index, committed_metadata=""
                    )
                    for index in range(count)
                ],
            )
            for name, count in topics
        ],
    )


async def commit_codes(services: Any, request: TxnOffsetCommitRequest) -> dict[str, list[int]]:
    response = await settled(txn_offset_commit.handle(request, context_of(services, 28, 5)))
    return {topic.name: [each.error_code for each in topic.partitions] for topic in response.topics}


async def test_offsets_in_a_transaction_are_committed_in_parts(services: Any, runtime: Runtime) -> None:
    codes = await commit_codes(services, commit(("a", MANY), ("gone", 1), ("b", 2)))
    assert codes == {"a": [0] * MANY, "gone": [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION], "b": [0, 0]}
    assert max(runtime.sizes) == PARTITIONS_PER_PART
    assert services.transactions.asked == [1], "the coordinator is asked once"
    assert len(runtime.partition.guards) == 0
    assert runtime.machine.offsets.is_pending("g", "a", MANY - 1)


async def test_many_topics_of_one_partition_take_no_more_steps(services: Any, runtime: Runtime) -> None:
    codes = await commit_codes(services, commit(*((f"t{n}", 1) for n in range(MANY))))
    assert codes == {f"t{n}": [0] for n in range(MANY)}
    assert len(runtime.sizes) == MANY // PARTITIONS_PER_PART + 1


async def test_an_ordinary_commit_in_a_transaction_is_one_step(services: Any, runtime: Runtime) -> None:
    assert await commit_codes(services, commit(("a", 2), ("b", 1))) == {"a": [0, 0], "b": [0]}
    assert (runtime.sizes, services.slices.steps) == ([3], [])


async def test_a_marker_between_two_parts_keeps_the_rest_out(services: Any, runtime: Runtime) -> None:
    runtime.after_step = lambda: runtime.partition.guards.on_marker(PRODUCER_ID, EPOCH, 0)
    codes = await commit_codes(services, commit(("a", MANY)))
    refused = [ErrorCode.INVALID_TXN_STATE] * (MANY - PARTITIONS_PER_PART)
    assert codes == {"a": [0] * PARTITIONS_PER_PART + refused}


async def test_a_long_commit_is_refused_in_parts_too(services: Any, runtime: Runtime) -> None:
    services.transactions.error = ErrorCode.INVALID_TXN_STATE
    assert await commit_codes(services, commit(("a", MANY))) == {"a": [ErrorCode.INVALID_TXN_STATE] * MANY}
    assert max(services.slices.steps) > MANY // PARTITIONS_PER_PART
    assert runtime.sizes == []


async def test_no_guard_stays_if_the_verification_raises(services: Any, runtime: Runtime) -> None:
    services.transactions.error = RuntimeError("for this test")
    with pytest.raises(RuntimeError, match="for this test"):
        await commit_codes(services, commit(("a", 1)))
    assert len(runtime.partition.guards) == 0


# --- OffsetFetch


def store(runtime: Runtime, topic: str, partitions: int) -> None:
    for index in range(partitions):
        request = commit((topic, 0))
        request.topics[0].partitions = [
            TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic.TxnOffsetCommitRequestPartition(
                partition_index=index, committed_offset=index, committed_metadata=""
            )
        ]
        runtime.write(
            "g", lambda machine, waiter, r=request: machine.commit_in_transaction(r, lambda *_: True, waiter), None
        )
    runtime.machine.replay_end_transaction(PRODUCER_ID, True)
    runtime.sizes.clear()


def fetch(version: int, indexes: list[int] | None) -> OffsetFetchRequest:
    """Return a request for the offsets of topic a; `indexes` None means all topics."""
    if version >= offset_fetch.FIRST_BATCHED_VERSION:
        group = OffsetFetchRequest.OffsetFetchRequestGroup
        asked = group.OffsetFetchRequestTopics(name="a", topic_id=TOPIC_ID, partition_indexes=indexes or [])
        return OffsetFetchRequest(groups=[group(group_id="g", topics=None if indexes is None else [asked])])
    topic = OffsetFetchRequest.OffsetFetchRequestTopic(name="a", partition_indexes=indexes or [])
    return OffsetFetchRequest(group_id="g", topics=None if indexes is None else [topic])


async def fetched(services: Any, version: int, request: OffsetFetchRequest) -> Any:
    return await settled(offset_fetch.handle(request, context_of(services, 9, version)))


@pytest.mark.parametrize("version", range(1, 11))
@pytest.mark.parametrize("names_partitions", [True, False])
async def test_offsets_are_fetched_in_parts(
    services: Any, runtime: Runtime, version: int, names_partitions: bool
) -> None:
    store(runtime, "a", MANY)
    store(runtime, "gone", 1)
    response = await fetched(services, version, fetch(version, list(range(MANY)) if names_partitions else None))
    topics = response.topics if version < offset_fetch.FIRST_BATCHED_VERSION else response.groups[0].topics
    found = {
        topic.name: [(each.partition_index, each.committed_offset) for each in topic.partitions] for topic in topics
    }
    wanted = {"a": [(n, n) for n in range(MANY)]}
    if not names_partitions and version < offset_fetch.FIRST_TOPIC_ID_VERSION:
        wanted["gone"] = [(0, 0)]
    assert found == wanted
    assert max(runtime.sizes) == PARTITIONS_PER_PART
    read_and_put_in_shape = 1 if version >= offset_fetch.FIRST_BATCHED_VERSION else 2
    long = [steps for steps in services.slices.steps if steps >= MANY // PARTITIONS_PER_PART]
    assert len(long) == read_and_put_in_shape


@pytest.mark.parametrize("version", [1, 2, 8])
async def test_a_long_fetch_of_offsets_is_refused_as_a_whole(services: Any, runtime: Runtime, version: int) -> None:
    runtime.refusal = KafkaError(ErrorCode.NOT_COORDINATOR)
    response = await fetched(services, version, fetch(version, list(range(MANY))))
    if version == 1:
        assert {each.error_code for each in response.topics[0].partitions} == {ErrorCode.NOT_COORDINATOR}
        assert len(response.topics[0].partitions) == MANY
    else:
        answer = response if version == 2 else response.groups[0]
        assert (answer.error_code, answer.topics) == (ErrorCode.NOT_COORDINATOR, [])


async def test_a_group_that_is_named_very_often_is_put_together_in_steps(services: Any, runtime: Runtime) -> None:
    """Earlier mentions of the group are not copied with each new one."""
    store(runtime, "a", 3)
    group = OffsetFetchRequest.OffsetFetchRequestGroup
    topic = group.OffsetFetchRequestTopics
    groups = [
        group(group_id="g", topics=[topic(name="a", partition_indexes=[n % 3])]) for n in range(4 * TOPICS_PER_STEP)
    ]
    first = groups[0].topics
    assert first is not None
    response = await fetched(services, 9, OffsetFetchRequest(groups=groups))
    (answer,) = response.groups
    assert [(each.partition_index, each.committed_offset) for each in answer.topics[0].partitions] == [
        (n, n) for n in range(3)
    ]
    assert len(first) == len(groups), "it has all of them, where it is"
    assert max(services.slices.steps) >= len(groups) // TOPICS_PER_STEP


async def test_very_many_topics_of_the_only_group_are_gone_through_in_steps(services: Any, runtime: Runtime) -> None:
    topic = OffsetFetchRequest.OffsetFetchRequestTopic
    topics = [topic(name=f"t{n}", partition_indexes=[]) for n in range(4 * TOPICS_PER_STEP)]
    request = OffsetFetchRequest(group_id="g", topics=topics)
    assert sum(1 for _ in offset_fetch._only_group(request)) == 4
    response = await fetched(services, 7, request)
    assert [each.name for each in response.topics] == [each.name for each in topics]


# --- LeaveGroup


async def test_members_leave_in_parts(services: Any, runtime: Runtime) -> None:
    runtime.machine._made("g")
    runtime.machine._forget_if_void = lambda group: None  # type: ignore[method-assign]
    members = [LeaveGroupRequest.MemberIdentity(member_id=str(n)) for n in range(2 * MEMBERS_PER_STEP + 1)]
    request = LeaveGroupRequest(group_id="g", members=members)
    response = await settled(leave_group.handle(request, context_of(services, 13, 5)))
    assert [member.member_id for member in response.members] == [member.member_id for member in members]
    assert {member.error_code for member in response.members} == {ErrorCode.UNKNOWN_MEMBER_ID}
    assert runtime.sizes == [MEMBERS_PER_STEP, MEMBERS_PER_STEP, 1]


# --- AddPartitionsToTxn


def add(*topics: tuple[str, int]) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="txn",
        v3_and_below_producer_id=PRODUCER_ID,
        v3_and_below_producer_epoch=EPOCH,
        v3_and_below_topics=[
            AddPartitionsToTxnTopic(name=name, partitions=list(range(count))) for name, count in topics
        ],
    )


@pytest.mark.parametrize(
    ("topics", "codes"),
    [
        ([("a", MANY)], {ErrorCode.NONE: MANY}),
        (
            [("a", MANY), ("gone", 1)],
            {ErrorCode.OPERATION_NOT_ATTEMPTED: MANY, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 1},
        ),
    ],
)
async def test_partitions_are_looked_up_and_answered_in_steps(
    services: Any, topics: list[tuple[str, int]], codes: dict[ErrorCode, int]
) -> None:
    response = await settled(add_partitions_to_txn.handle(add(*topics), context_of(services, 24, 3)))
    results = response.results_by_topic_v3_and_below
    assert Counter(each.partition_error_code for topic in results for each in topic.results_by_partition) == codes
    looked_up, answered = services.slices.steps
    assert min(looked_up, answered) >= MANY // add_partitions_to_txn.PARTITIONS_PER_STEP


async def test_a_request_abandoned_by_its_client_writes_no_more(services: Any, runtime: Runtime) -> None:
    """A transactional commit whose result cannot reach its client must not take effect."""
    clock = ManualClock()
    services.slices = Slices(clock, Tasks())
    runtime.after_step = lambda: clock.advance_ms(10)
    answer = txn_offset_commit.handle(commit(("a", MANY)), context_of(services, 28, 5))
    assert isinstance(answer, asyncio.Future)
    written = len(runtime.sizes)
    answer.cancel()
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(runtime.sizes) == written
    assert len(runtime.partition.guards) == 0
