"""CoordinatorRuntime with a toy machine that counts: appends, replay, replies after the commit, loading, timers and
leadership.
"""

from __future__ import annotations

import asyncio
from errno import EIO
from itertools import count

import pytest
from tests.support.compacted import all_batches, clean
from tests.support.compacted import put as put_records
from tests.support.counters import TOPIC, Counters, counters, failed, loaded, put, wait_for_ever
from tests.support.storage import NOW

from oncelog_broker.coordinator.effects import Effects, Encoded
from oncelog_broker.coordinator.runtime import (
    LOAD_RETRY_SECONDS,
    MAX_LOAD_RETRY_SECONDS,
    CoordinatorRuntime,
    divided,
)
from oncelog_broker.log.config import LogConfig
from oncelog_broker.log.validation import AppendOrigin
from oncelog_broker.metadata.model.image import NO_LEADER
from oncelog_broker.runtime.clock import ManualClock
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.records.batch import batches
from oncelog_protocol.records.builder import build_batch
from oncelog_protocol.records.compression import Compression
from oncelog_protocol.records.control import ControlType, EndTransactionMarker, marker_batch
from oncelog_protocol.records.record import Record, read_records


async def test_without_leadership_nobody_is_coordinator(runtime, internal_topic):
    assert runtime.write("a", put("a", 1), failed) is ErrorCode.NOT_COORDINATOR
    runtime.on_image(internal_topic.lead())
    assert runtime.write("a", put("a", 1), failed) == ("put", None)
    runtime.on_image(internal_topic.resign())
    assert runtime.write("a", put("a", 1), failed) is ErrorCode.NOT_COORDINATOR


async def test_records_of_a_step_are_one_batch_and_are_replayed(runtime, internal_topic):
    runtime.on_image(internal_topic.lead())

    def two(machine, waiter):
        effects = put("a", 1)(machine, waiter)
        effects.append(("b", 2))
        assert machine.numbers == {}  # only the replay of a record changes the numbers
        return effects

    assert runtime.write("a", two, failed) == ("put", None)
    assert counters(runtime).numbers == {"a": 1, "b": 2}
    log = internal_topic.logs[0]
    (batch,) = batches(log.reader.read(0, 10_000, upper_bound=log.log_end_offset, min_one_batch=True))
    assert [(record.key, record.value) for record in read_records(batch)] == [(b"a", b"1"), (b"b", b"2")]


async def test_s85_changes_to_soft_state_are_made_with_the_records_or_not_at_all(runtime, internal_topic):
    runtime.on_image(internal_topic.lead())
    known: list[dict[str, int]] = []

    def with_change(machine, waiter):
        effects = put("a", 1)(machine, waiter)
        effects.changes.append(lambda: known.append(dict(machine.numbers)))
        return effects

    internal_topic.led[0].resign()
    assert runtime.write("a", with_change, failed) is ErrorCode.NOT_COORDINATOR
    assert known == []
    runtime.on_image(internal_topic.lead())
    assert runtime.write("a", with_change, failed) == ("put", None)
    assert known == [{"a": 1}]


async def test_the_loaded_state_equals_the_former_one(runtime, internal_topic):
    runtime.on_image(internal_topic.lead())
    for number in range(100):
        runtime.write("a", put(f"n{number % 7}", number), failed)
    runtime.write("a", put("n3", None), failed)
    before = dict(counters(runtime).numbers)
    assert counters(runtime).offsets == list(range(101))
    runtime.on_image(internal_topic.resign())
    runtime.on_image(internal_topic.lead())
    assert runtime.write("a", put("a", 1), failed) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert runtime.is_loading
    await loaded(runtime)
    assert counters(runtime).numbers == before
    assert counters(runtime).offsets == [93, *range(95, 101)], "the latest of each name, in order"
    internal_topic.advance(1.0)
    assert counters(runtime).fired == ["loaded"]


async def test_loading_passes_over_unknown_records_and_ends_transactions(runtime, internal_topic):
    internal_topic.lead()
    partition = internal_topic.led[0]

    def append(batch):
        partition.append(memoryview(batch), required_acks=-1, origin=AppendOrigin.COORDINATOR)

    append(build_batch([Record(0, 1, b"?later", b"x", []), Record(0, 1, b"a", b"1", [])], compression=Compression.LZ4))
    for producer, outcome in ((5, ControlType.COMMIT), (6, ControlType.ABORT)):
        record = Record(0, 1, b"p%d" % producer, b"9", [])
        append(build_batch([record], producer_id=producer, producer_epoch=0, base_sequence=0, transactional=True))
        append(marker_batch(EndTransactionMarker(outcome, 0), producer_id=producer, producer_epoch=0, timestamp=1))
    runtime.on_image(internal_topic.image)
    await loaded(runtime)
    assert counters(runtime).numbers == {"a": 1, "p5": 9}
    assert counters(runtime).pending == {}


async def test_a_marker_that_comes_as_loading_ends_is_not_missed(runtime, internal_topic, monkeypatch):
    """The replay has read the entire log, but the coordinator counts as loaded only in a later turn of the loop. A
    transaction marker that is appended between these two moments must not be lost.
    """
    internal_topic.lead()
    partition = internal_topic.led[0]
    batch = build_batch(
        [Record(0, 1, b"p5", b"9", [])], producer_id=5, producer_epoch=0, base_sequence=0, transactional=True
    )
    partition.append(memoryview(batch), required_acks=-1, origin=AppendOrigin.COORDINATOR)
    run, markers = internal_topic.host.slices.run, [EndTransactionMarker(ControlType.COMMIT, 0)]

    def then_a_marker(steps):
        answer = run(steps)
        if markers:
            partition.append_marker(markers.pop(), producer_id=5, producer_epoch=0)
            runtime.end_transaction(0, 5, committed=True)
        return answer

    monkeypatch.setattr(internal_topic.host.slices, "run", then_a_marker)
    runtime.on_image(internal_topic.image)
    await loaded(runtime)
    assert (counters(runtime).numbers, counters(runtime).pending) == ({"p5": 9}, {})


async def test_e10_a_log_whose_end_was_compacted_away_is_loaded(runtime, internal_topic):
    """Compaction has removed all records between the last record and the log end, so loading must not wait for any
    (KAFKA-9065).
    """
    internal_topic.lead()
    log = internal_topic.logs[0]
    put_records(log, (b"a", b"1"))
    gone = put_records(log, (b"b", b"2"))
    put_records(log, (b"b", None))
    log.trimmer.roll()
    clean(log)
    clean(log, first_dirty=log.log_end_offset, now_ms=NOW + 2 * log.config.delete_retention_ms)
    last = [batch.last_offset for batch in all_batches(log) if batch.records_count][-1]
    assert last < gone < log.log_end_offset - 1
    internal_topic.resign()
    runtime.on_image(internal_topic.lead())
    async with asyncio.timeout(5):
        await loaded(runtime)
    assert counters(runtime).numbers == {"a": 1}


async def test_a_log_that_cannot_be_read_coordinates_nothing(runtime, internal_topic):
    internal_topic.lead()
    batch = build_batch([Record(0, 1, b"a", b"not a number", [])])
    internal_topic.led[0].append(memoryview(batch), required_acks=-1, origin=AppendOrigin.COORDINATOR)
    runtime.on_image(internal_topic.image)
    await loaded(runtime)
    with pytest.raises(KafkaError, match="not a number") as caught:
        runtime.shard("a")
    assert caught.value.code is ErrorCode.NOT_COORDINATOR


async def test_loading_lets_other_work_run_in_between(runtime, internal_topic, monkeypatch):
    internal_topic.lead()
    for number in range(20):
        records = [Record(0, 1, b"n%d" % index, b"%d" % number, []) for index in range(500)]
        internal_topic.led[0].append(
            memoryview(build_batch(records)), required_acks=-1, origin=AppendOrigin.COORDINATOR
        )
    looks = count()
    monkeypatch.setattr(ManualClock, "monotonic", lambda self: next(looks) / 1000)  # each reading takes 1 ms
    runtime.on_image(internal_topic.image)
    assert await loaded(runtime) > 50
    assert len(counters(runtime).numbers) == 500


async def test_a_log_that_could_not_be_read_is_loaded_again(runtime, internal_topic, monkeypatch):
    runtime.on_image(internal_topic.lead())
    runtime.write("a", put("a", 1), failed)
    runtime.on_image(internal_topic.resign())

    def unreadable(*args, **options):
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)

    with monkeypatch.context() as patched:
        patched.setattr(type(internal_topic.logs[0].reader), "read", unreadable)
        runtime.on_image(internal_topic.lead())
        await loaded(runtime)
    assert runtime.write("a", put("a", 2), failed) is ErrorCode.NOT_COORDINATOR
    ((seconds, load_again),) = internal_topic.wake_ups
    assert seconds == LOAD_RETRY_SECONDS
    load_again()
    await loaded(runtime)
    assert counters(runtime).numbers == {"a": 1}


async def test_the_pauses_between_failed_loads_grow_up_to_a_limit_until_a_new_leadership(runtime, internal_topic):
    internal_topic.lead()
    batch = build_batch([Record(0, 1, b"a", b"not a number", [])])
    internal_topic.led[0].append(memoryview(batch), required_acks=-1, origin=AppendOrigin.COORDINATOR)
    pauses = []

    async def fail(times):
        for _ in range(times):
            await loaded(runtime)
            ((seconds, load_again),) = internal_topic.wake_ups
            internal_topic.wake_ups.clear()
            pauses.append(seconds)
            load_again()

    runtime.on_image(internal_topic.image)
    await fail(6)
    assert pauses == [LOAD_RETRY_SECONDS * factor for factor in (1, 2, 4, 8)] + [MAX_LOAD_RETRY_SECONDS] * 2
    runtime.on_image(internal_topic.resign())
    runtime.on_image(internal_topic.lead())
    pauses.clear()
    await fail(2)
    assert pauses == [LOAD_RETRY_SECONDS, 2 * LOAD_RETRY_SECONDS]


async def test_losing_leadership_ends_the_loading(runtime, internal_topic):
    internal_topic.lead()
    batch = build_batch([Record(0, 1, b"a", b"1", [])])
    internal_topic.led[0].append(memoryview(batch), required_acks=-1, origin=AppendOrigin.COORDINATOR)
    runtime.on_image(internal_topic.image)
    runtime.on_image(internal_topic.resign())
    for _ in range(5):
        await asyncio.sleep(0)
    assert not runtime.is_loading
    assert runtime.write("a", put("a", 1), failed) is ErrorCode.NOT_COORDINATOR


async def test_a_failed_append_changes_nothing(runtime, internal_topic):
    internal_topic.config = LogConfig(cleanup_policy=frozenset({"compact"}), min_insync_replicas=2)
    internal_topic.replicas = (1, 2)
    runtime.on_image(internal_topic.lead())
    assert runtime.write("a", put("a", 1, timer=1.0), failed) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    machine = counters(runtime)
    assert machine.numbers == {}
    assert len(runtime.shard("a").timers) == 0
    internal_topic.logs[0].update_config(LogConfig(max_message_bytes=100))
    assert runtime.write("a", put("a" * 200, 1), failed) is ErrorCode.UNKNOWN_SERVER_ERROR
    internal_topic.logs[0].close()
    assert runtime.write("a", put("a", 1), failed) is ErrorCode.NOT_COORDINATOR
    assert machine.numbers == {}


def put_many(count: int, *, may_be_divided: bool = True, name: str = "n%05d"):
    def operation(machine: Counters, waiter):
        effects = Effects()
        effects.may_be_divided = may_be_divided
        effects.too_large = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        for number in range(count):
            effects.append((name % number, number))
        effects.reply(waiter, "put")
        return effects

    return operation


async def test_records_that_may_be_divided_take_as_many_batches_as_they_need(runtime, internal_topic):
    internal_topic.config = LogConfig(cleanup_policy=frozenset({"compact"}), max_message_bytes=2000)
    runtime.on_image(internal_topic.lead())
    assert runtime.write("a", put_many(1000, may_be_divided=False), failed) is ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    assert counters(runtime).numbers == {}
    assert runtime.write("a", put_many(1000), failed) == "put"
    log = internal_topic.logs[0]
    written = list(batches(bytes(log.reader.read(0, 1 << 20, upper_bound=1000, min_one_batch=True))))
    assert (log.log_end_offset, len(written) > 10) == (1000, True)
    assert max(batch.size for batch in written) <= 2000
    assert counters(runtime).numbers == {f"n{number:05d}": number for number in range(1000)}
    assert counters(runtime).offsets == list(range(1000))


async def test_the_logged_part_of_a_divided_step_is_replayed(runtime, internal_topic, monkeypatch):
    internal_topic.config = LogConfig(cleanup_policy=frozenset({"compact"}), max_message_bytes=2000)
    runtime.on_image(internal_topic.lead())
    log = internal_topic.logs[0]
    append_as_leader = type(log).append_as_leader

    def full_after_three(self, *arguments, **named):
        if self.log_end_offset >= 3 * first_batch:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        return append_as_leader(self, *arguments, **named)

    first_batch = divided([Encoded(b"n00000", b"0")] * 1000, 2000)[0]
    monkeypatch.setattr(type(log), "append_as_leader", full_after_three)
    assert runtime.write("a", put_many(1000), failed) is ErrorCode.NOT_COORDINATOR
    assert log.log_end_offset == len(counters(runtime).numbers) >= 3 * first_batch


def test_an_oversized_record_is_a_batch_of_its_own():
    """The log refuses the batch with the oversized record and accepts the other batches."""
    small, large = Encoded(b"k" * 10, None), Encoded(b"k" * 5000, b"v")
    assert divided([small, small, large, small], 1000) == [2, 1, 1]


async def test_all_requests_waiting_for_records_learn_that_logging_failed(runtime, internal_topic):
    internal_topic.config = LogConfig(cleanup_policy=frozenset({"compact"}), max_message_bytes=100)
    runtime.on_image(internal_topic.lead())
    waiting = runtime.write("a", wait_for_ever, failed)

    def operation(machine: Counters, waiter):
        effects = Effects()
        effects.append(("a" * 200, 1))
        effects.if_not_logged = tell
        effects.reply(waiter, "put")
        return effects

    def tell(error):
        effects = Effects()
        effects.reply(counters(runtime).waiting[0], error)
        return effects

    assert runtime.write("a", operation, failed) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert await waiting is ErrorCode.UNKNOWN_SERVER_ERROR


async def test_s40_the_reply_waits_until_the_records_are_committed(runtime, internal_topic, monkeypatch):
    runtime.on_image(internal_topic.lead())
    partition = internal_topic.led[0]
    advance = type(partition)._advance_high_watermark
    monkeypatch.setattr(type(partition), "_advance_high_watermark", lambda self, size: None)  # followers lag
    first = runtime.write("a", put("a", 1), failed)
    assert asyncio.isfuture(first) and not first.done()

    def look(machine, waiter):
        effects = Effects()
        effects.reply(waiter, machine.numbers["a"])
        return effects

    second = runtime.write("a", look, failed)
    assert not second.done()  # the machine has replayed uncommitted records
    advance(partition, 0)
    assert await first == ("put", None)
    assert await second == 1
    third = runtime.write("a", put("a", 2), failed)
    runtime.on_image(internal_topic.resign())
    assert await third is ErrorCode.NOT_COORDINATOR


async def test_a_waiting_request_is_answered_when_the_coordinator_moves(runtime, internal_topic):
    runtime.on_image(internal_topic.lead())
    waiting = runtime.write("a", wait_for_ever, failed)
    assert not waiting.done()
    runtime.on_image(internal_topic.resign())
    assert waiting.result() is ErrorCode.NOT_COORDINATOR
    runtime.on_image(internal_topic.lead())
    waiting = runtime.write("a", wait_for_ever, failed)
    runtime.close()
    assert waiting.result() is ErrorCode.NOT_COORDINATOR


async def test_a_closed_runtime_loads_nothing_for_a_later_image(runtime, internal_topic):
    """The next coordinator may have written records that the log of a stopping broker lacks."""
    runtime.on_image(internal_topic.lead())
    runtime.close()
    runtime.on_image(internal_topic.lead())
    runtime.on_opened({TOPIC})
    assert runtime.all_shards() == []
    assert runtime.read("a", lambda machine: machine, failed) is ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize("ends", ["resigned", "failed"])
async def test_a_coordinator_that_may_have_a_successor_tells_nothing_of_its_state(runtime, internal_topic, ends):
    """A log that has failed gives up the leadership, so another coordinator may exist before the image shows it."""

    def refused(machine, waiter):
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)

    runtime.on_image(internal_topic.lead())
    assert runtime.write("a", refused, failed) is ErrorCode.UNKNOWN_MEMBER_ID
    (shard,) = runtime.loaded_shards()
    if ends == "resigned":
        internal_topic.led[0].resign()
    else:
        internal_topic.logs[0].flusher.flush_failed(OSError(EIO, "Input/output error"))
    assert runtime.write("a", refused, failed) is ErrorCode.NOT_COORDINATOR
    assert runtime.read("a", lambda machine: machine, failed) is ErrorCode.NOT_COORDINATOR
    assert runtime.led_shard(0, 1) is runtime.ready_shard(0, 1) is None
    assert not runtime.may_step(shard)
    assert runtime.loaded_shards() == []


async def test_e11_the_same_leader_in_a_new_epoch_keeps_its_machine(runtime, internal_topic):
    runtime.on_image(internal_topic.lead())
    machine = counters(runtime)
    runtime.on_image(internal_topic.lead())
    assert counters(runtime) is machine


async def test_a_partition_is_coordinated_as_soon_as_its_log_is_open(runtime, internal_topic):
    """The image arrives first; the logs of a new topic open one after another."""
    shown = internal_topic.lead()
    late = internal_topic.led.pop(0)
    runtime.on_image(shown)
    assert runtime.write("a", put("a", 1), failed) is ErrorCode.NOT_COORDINATOR
    internal_topic.led[0] = late
    runtime.on_opened({"orders"})
    assert runtime.write("a", put("a", 1), failed) is ErrorCode.NOT_COORDINATOR
    runtime.on_opened({TOPIC})
    assert runtime.write("a", put("a", 1), failed) == ("put", None)


async def test_e9_while_the_session_is_in_doubt_nobody_is_served_and_nothing_is_torn_down(runtime, internal_topic):
    """Kafka once kept half a coordinator's state: the state was being unloaded when the broker's session returned
    (KAFKA-9307).
    """
    runtime.on_image(internal_topic.lead())
    runtime.write("a", put("due", 1, timer=1.0), failed)
    waiting = runtime.write("a", wait_for_ever, failed)
    machine = counters(runtime)
    may_lead = False
    internal_topic.may_lead = lambda: may_lead
    assert runtime.write("a", put("a", 1), failed) is ErrorCode.NOT_COORDINATOR
    assert runtime.read("a", lambda machine: machine, failed) is ErrorCode.NOT_COORDINATOR
    assert runtime.loaded_shards() == []
    internal_topic.advance(5.0)
    runtime.on_image(internal_topic.lead())
    assert machine.fired == []
    assert not waiting.done()
    may_lead = True
    assert counters(runtime) is machine
    internal_topic.advance(2.0)
    assert machine.fired == ["due"]


async def test_timers_fire_in_time_and_are_rearmed(runtime, internal_topic):
    runtime.on_image(internal_topic.lead())
    runtime.write("a", put("late", 1, timer=10.0), failed)
    runtime.write("a", put("early", 1, timer=5.0), failed)
    internal_topic.advance(4.0)
    runtime.write("a", put("late", 1, timer=10.0), failed)
    internal_topic.advance(1.0)
    assert counters(runtime).fired == ["early"]
    internal_topic.advance(8.9)
    assert counters(runtime).fired == ["early"]
    internal_topic.advance(0.2)
    assert counters(runtime).fired == ["early", "late"]
    assert len(internal_topic.wake_ups) <= 1  # an outdated wake-up schedules no further wake-up


async def test_a_timer_whose_records_cannot_be_appended_is_retried(runtime, internal_topic):
    internal_topic.config = LogConfig(min_insync_replicas=2)
    internal_topic.replicas = (1, 2)
    runtime.on_image(internal_topic.lead())

    def start(machine, waiter):
        effects = Effects()
        effects.start_timer("log", 1.0)
        effects.reply(waiter, None)
        return effects

    runtime.write("a", start, failed)
    internal_topic.advance(3.5)
    machine = counters(runtime)
    assert machine.fired == ["log"] * 3
    assert machine.numbers == {}
    internal_topic.logs[0].update_config(LogConfig())
    internal_topic.advance(1.0)
    assert machine.numbers == {"fired": 1}
    internal_topic.advance(5.0)
    assert machine.fired == ["log"] * 4


async def test_keys_are_spread_over_partitions(tmp_path, internal_topic):
    internal_topic.count = 5
    runtime = CoordinatorRuntime(
        "__consumer_offsets",
        Counters,
        internal_topic,
        internal_topic.host,
    )
    assert runtime.partition_of("a") is None
    runtime.on_image(internal_topic.lead(2))
    assert runtime.partition_of("a") == 97 % 5
    assert runtime.write("a", put("a", 1), failed) == ("put", None)
    assert runtime.write("b", put("b", 1), failed) is ErrorCode.NOT_COORDINATOR
    assert [machine.index for machine in runtime.machines()] == [2]


def decide(name: str, end: str):
    def operation(machine: Counters, waiter):
        effects = put(name, 1)(machine, waiter)
        effects.ends.append(end)
        return effects

    return operation


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_s39_a_decision_is_passed_on_once_committed_and_only_by_its_coordinator(internal_topic):
    """If too few in-sync replicas are left, the client gets an error, but the logged decision remains valid and is
    carried out when replicas return.
    """
    ended = []
    runtime = CoordinatorRuntime(
        TOPIC,
        Counters,
        internal_topic,
        internal_topic.host,
        on_end=lambda shard, end, epoch: ended.append((end, epoch)),
    )
    internal_topic.config = LogConfig(cleanup_policy=frozenset({"compact"}), min_insync_replicas=2)
    runtime.on_image(internal_topic.lead())
    partition = internal_topic.led[0]
    partition.lead(1, (1, 2), (1, 2))
    reply = runtime.write("a", decide("a", "first"), failed)
    await settle()
    assert (reply.done(), ended) == (False, [])
    partition.lead(1, (1,), (1, 2))
    assert await reply is ErrorCode.COORDINATOR_NOT_AVAILABLE
    await settle()
    assert ended == []
    partition.lead(1, (1, 2), (1, 2))
    partition.on_follower_fetch(2, partition.log.log_end_offset)
    await settle()
    assert ended == [("first", 1)], "logged in that leader epoch"
    again = runtime.write("a", decide("a", "second"), failed)
    internal_topic.resign()
    assert await again is ErrorCode.NOT_COORDINATOR
    await settle()
    assert len(ended) == 1, "the next coordinator finds it in the log"


async def test_a_reply_waits_for_slow_replicas_only_so_long_and_the_decision_longer(internal_topic):
    """A hanging replica counts as in sync for a while, so the client gets an error and retries its request."""
    ended = []
    runtime = CoordinatorRuntime(
        TOPIC,
        Counters,
        internal_topic,
        internal_topic.host,
        on_end=lambda shard, end, epoch: ended.append(end),
        commit_seconds=3.0,
    )
    runtime.on_image(internal_topic.lead())
    partition = internal_topic.led[0]
    partition.lead(1, (1, 2), (1, 2))
    decided = runtime.write("a", decide("a", "first"), failed)
    asked = runtime.read("a", lambda machine: machine.numbers.get("a"), failed)
    internal_topic.advance(2.9)
    await settle()
    assert (decided.done(), asked.done()) == (False, False)
    internal_topic.advance(0.2)
    assert await decided is await asked is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert ended == []
    partition.on_follower_fetch(2, partition.log.log_end_offset)
    await settle()
    assert ended == ["first"]
    assert internal_topic.led[0].purgatory.appends == []


async def test_the_image_tells_which_broker_coordinates_a_key(runtime, internal_topic):
    assert runtime.leader_of("a") == NO_LEADER
    runtime.on_image(internal_topic.lead())
    assert runtime.leader_of("a") == 1
