"""The judges (checks) of store writes and logs find violations of their guarantees, and find none in a correct run."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.storage import append, open_log

from oncelog_broker.coordinator.transaction.metadata import TopicPartition, TransactionMetadata
from oncelog_broker.coordinator.transaction.states import TransactionState
from oncelog_broker.log.config import LogConfig
from oncelog_broker.metadata import paths
from oncelog_broker.metadata.model.payloads import (
    PartitionState,
    ReplicaAssignment,
    TopicAssignment,
    encode_config,
    encode_partition_state,
    encode_topic,
)
from oncelog_broker.metadata.stores.tree import Changes, TreeNode
from oncelog_protocol.records.batch import RecordBatch
from oncelog_protocol.records.builder import build_batch
from oncelog_protocol.records.control import ControlType, EndTransactionMarker, marker_batch
from oncelog_protocol.records.record import Record
from oncelog_simulation.judges.committed import Batch, Prefix
from oncelog_simulation.judges.decisions import Decisions
from oncelog_simulation.judges.elections import Elections
from oncelog_simulation.judges.leases import Leases
from oncelog_simulation.judges.logs import NEVER, Walked, wrong_in
from oncelog_simulation.judges.logs import _wrong_producers as wrong_producers
from oncelog_simulation.judges.settings import wrong_settings

ALL = ReplicaAssignment((1, 2, 3))
GOOD = PartitionState(1, 5, (1, 2, 3), 0)


class Store:
    """The attributes of the metadata store that the judge (check) of elections reads."""

    def __init__(self) -> None:
        self.on_written: Any = None
        self.on_restored: Any = None
        self.tree = SimpleNamespace(nodes=list)


def node(data: bytes) -> TreeNode:
    return TreeNode(data, 0, 1, 1)


def written(assignment: ReplicaAssignment, state: PartitionState) -> Changes:
    topic = TopicAssignment(b"t" * 16, {0: assignment})
    return {
        paths.topic("lines"): node(encode_topic(topic)),
        paths.partition_state("lines", 0): node(encode_partition_state(state)),
    }


def wrong_after(*writes: Changes) -> list[str]:
    world: Any = SimpleNamespace(store=Store())
    judge = Elections(world)
    for write in writes:
        world.store.on_written(write)
    return list(judge.look_closely(world))


@pytest.mark.parametrize(
    ("after", "told"),
    [
        (PartitionState(2, 6, (2, 3), 0), []),
        (PartitionState(1, 5, (1,), 0), []),
        (PartitionState(-1, 6, (1, 2, 3), 0), []),
        (PartitionState(1, 4, (1, 2, 3), 0), ["lines-0: the leader epoch went from 5 to 4"]),
        (PartitionState(2, 5, (2, 3), 0), ["lines-0: the leader went from 1 to 2 in the leader epoch 5"]),
        (PartitionState(2, 6, (1, 3), 0), ["lines-0: broker 2 leads, and in sync are [1, 3]"]),
        (PartitionState(1, 5, (1, 4), 0), ["lines-0: in sync are [1, 4] of the replicas [1, 2, 3]"]),
    ],
)
def test_a_state_must_follow_from_the_one_before(after: PartitionState, told: list[str]) -> None:
    assert wrong_after(written(ALL, GOOD), written(ALL, after)) == told


def test_a_replica_out_of_sync_must_not_be_elected_unless_the_election_says_that_it_is_unclean() -> None:
    before = written(ALL, PartitionState(1, 5, (1,), 0))
    told = ["lines-0: broker 2 was elected, and in sync were [1]"]
    assert wrong_after(before, written(ALL, PartitionState(2, 6, (2,), 0))) == told
    assert wrong_after(before, written(ALL, PartitionState(2, 6, (2,), 0, leader_recovery_state=1))) == []


def test_a_move_must_not_end_before_its_target_is_in_sync() -> None:
    moving = ReplicaAssignment((3, 4, 1, 2), (4,), (1, 2))
    moved = ReplicaAssignment((3, 4))
    early = written(moving, PartitionState(1, 5, (1, 2, 3), 0))
    told = ["lines-0: a move to [3, 4] has ended, and in sync are [1, 2, 3]"]
    assert wrong_after(early, written(moved, PartitionState(3, 6, (3,), 0))) == told
    late = written(moving, PartitionState(1, 5, (1, 2, 3, 4), 0))
    assert wrong_after(late, written(moved, PartitionState(3, 6, (3, 4), 0))) == []
    same_epoch = ["lines-0: replicas [1, 2] were taken away in the leader epoch 5"]
    assert wrong_after(late, written(moved, PartitionState(1, 5, (3, 4), 0)))[-1:] == same_epoch


def test_a_prefix_knows_which_transactions_have_no_marker() -> None:
    prefix = Prefix()
    data = Batch(0, 1, 0, 1, producer_id=7, is_transactional=True)
    prefix.extend([data, Batch(1, 2, 0, 2, producer_id=8, is_transactional=True)], 2, 1)
    assert prefix.undecided == {7: 0, 8: 1}
    prefix.extend([Batch(2, 3, 0, 3, producer_id=7, is_transactional=True, is_control=True)], 3, 1)
    assert prefix.undecided == {8: 1}


# --- transactions


class Replica:
    """An in-sync replica with or without the marker of producer 7."""

    broker_id = 2

    def __init__(self, *, is_open: bool) -> None:
        open_one = (7, 3) if is_open else None
        state = SimpleNamespace(has_open_transaction=lambda *asked: asked == open_one)
        self.log = SimpleNamespace(producers=SimpleNamespace(state=state))


def decided(before: TransactionMetadata, after: TransactionMetadata, *, is_open: bool, leads: bool = True) -> list[str]:
    in_sync = [Replica(is_open=is_open)]
    committed: Any = SimpleNamespace(excused=set(), in_sync=lambda *_: in_sync, is_leader=lambda *_: leads)
    transactions = {"payer": before}
    runtime = SimpleNamespace(machines=lambda: [Coordinating], partition_of=lambda _: 0)
    machines = SimpleNamespace(transactions=SimpleNamespace(runtime=runtime))
    Coordinating.transactions = transactions
    machine: Any = SimpleNamespace(
        broker=SimpleNamespace(parts=SimpleNamespace(coordinators=SimpleNamespace(present=machines)))
    )
    judge = Decisions(committed)
    world: Any = None
    assert list(judge.look(world, machine)) == []
    transactions["payer"] = after
    return list(judge.look(world, machine))


class Coordinating:
    """Replaces the state machine of a coordinator."""

    transactions: dict[str, TransactionMetadata]


PREPARED = TransactionMetadata(
    "payer", 7, 4, 1000, TransactionState.PREPARE_COMMIT, frozenset({TopicPartition("lines", 0)})
)


def test_a_transaction_is_complete_with_a_marker_in_every_replica_in_sync() -> None:
    complete = PREPARED._replace(state=TransactionState.COMPLETE_COMMIT, partitions=frozenset())
    assert decided(PREPARED, complete, is_open=False) == []
    told = ["payer: CompleteCommit, and broker 2, which is in sync, has no marker in lines-0"]
    assert decided(PREPARED, complete, is_open=True) == told


def test_a_former_coordinator_is_not_asked_for_markers() -> None:
    complete = PREPARED._replace(state=TransactionState.COMPLETE_COMMIT, partitions=frozenset())
    assert decided(PREPARED, complete, is_open=True, leads=False) == []


def test_a_decision_stays_and_epochs_never_go_back() -> None:
    aborted = PREPARED._replace(state=TransactionState.COMPLETE_ABORT)
    assert decided(PREPARED, aborted, is_open=False) == ["payer: CompleteAbort follows PrepareCommit"]
    older = PREPARED._replace(producer_epoch=3)
    assert decided(PREPARED, older, is_open=False) == ["payer: the epoch of producer 7 went from 4 to 3"]


# --- logs


def batch_at(offset: int, data: bytearray | bytes) -> RecordBatch:
    changed = bytearray(data)
    changed[:8] = offset.to_bytes(8, "big")
    return RecordBatch(memoryview(changed))


def test_a_walk_through_a_log_finds_producers_and_what_was_aborted() -> None:
    walked = Walked()
    record = Record(0, 1, b"k", b"v", [])
    data = build_batch([record], producer_id=7, producer_epoch=3, base_sequence=5, transactional=True)
    walked.take(batch_at(0, bytes(data)))
    assert (walked.producers, walked.open) == ({7: (3, 5)}, {7: 0})
    marker = marker_batch(
        EndTransactionMarker(ControlType.ABORT, 0), producer_id=7, producer_epoch=4, base_offset=1, timestamp=1
    )
    walked.take(batch_at(1, bytes(marker)))
    assert (walked.producers, walked.open, walked.aborted) == ({7: (4, -1)}, {}, {(7, 1)})


@pytest.mark.parametrize(
    ("known", "in_batches", "told"), [(4, 10, 0), (8, 10, 1), (10, 10, 0), (10, -1, 1), (-1, 10, 1), (4, -1, 0)]
)
def test_a_transaction_may_have_begun_in_batches_that_are_deleted(known: int, in_batches: int, told: int) -> None:
    """Seed 570115 (directed): the log starts at 7, in the middle of a transaction that began at 4."""
    walked = Walked(producers={1: (0, 9)}, last_ms={1: 1}, with_data={1})
    walked.open.update({1: in_batches} if in_batches >= 0 else {})
    state = SimpleNamespace(producer_id=1, epoch=0, last_sequence=9, transaction_first_offset=known)
    producers = SimpleNamespace(state=SimpleNamespace(producers=lambda: [state]))
    partition: Any = SimpleNamespace(log=SimpleNamespace(log_start_offset=7, producers=producers))
    assert len(list(wrong_producers(partition, walked, NEVER, is_whole=True))) == told


@pytest.mark.parametrize(("stored", "told"), [({"min.insync.replicas": "1"}, 0), ({"min.insync.replicas": "2"}, 1)])
def test_a_log_must_have_the_settings_of_its_topic(stored: dict[str, str], told: int) -> None:
    nodes = {paths.topic_config("lines"): node(encode_config(stored))}
    log = SimpleNamespace(name="lines-0", config=LogConfig(min_insync_replicas=1))
    replicas = SimpleNamespace(partitions=lambda: [SimpleNamespace(topic="lines", log=log)])
    broker = SimpleNamespace(parts=SimpleNamespace(replication=SimpleNamespace(replicas=replicas)))
    world: Any = SimpleNamespace(
        brokers={"broker-1": SimpleNamespace(number=1, broker=broker)},
        store=SimpleNamespace(tree=SimpleNamespace(node=nodes.get)),
    )
    assert len(wrong_settings(world)) == told


@pytest.mark.parametrize(
    ("why", "may_lead", "is_serving", "told"),
    [("expired", True, True, 1), ("expired", False, True, 0), ("expired", True, False, 0), ("closed", True, True, 0)],
)
def test_a_broker_must_not_lead_when_its_session_has_expired(
    why: str, may_lead: bool, is_serving: bool, told: int
) -> None:
    heard: list[int] = []
    parts = SimpleNamespace(
        storage=SimpleNamespace(store=SimpleNamespace(session_id=7)),
        membership=SimpleNamespace(member=SimpleNamespace(may_lead=lambda: may_lead)),
    )
    machine = SimpleNamespace(number=1, broker=SimpleNamespace(parts=parts), is_serving=is_serving)
    store = SimpleNamespace(on_ended=lambda session_id, why: heard.append(session_id), sessions={7: None})
    world: Any = SimpleNamespace(brokers={"broker-1": machine}, store=store)
    judge = Leases(world)
    assert list(judge.look_closely(world)) == []
    world.store.on_ended(7, why)
    assert list(judge.look_closely(world)) == [], "seed 386356: a restored store has the session again"
    del world.store.sessions[7]
    assert len(list(judge.look_closely(world))) == told
    assert list(judge.look_closely(world)) == [], "told once"
    assert heard == [7]


# --- logs


def test_a_log_that_begins_in_the_middle_of_a_batch_is_right(tmp_path: Path) -> None:
    log = open_log(tmp_path / "lines-0")
    append(log, b"a", b"b", b"c")
    append(log, b"d")
    log.trimmer.delete_records_before(1)
    partition: Any = SimpleNamespace(log=log)
    assert list(wrong_in(partition)) == []
    log.close()
