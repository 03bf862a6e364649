"""Each judge (a check of one guarantee) finds the violations of its guarantee, and finds none in a correct run."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from oncelog import TopicPartition
from oncelog.admin.groups import CommittedOffset
from oncelog.errors import ConnectionFailed, ErrorCode, KafkaError
from oncelog_simulation import run as simulated
from oncelog_simulation.judges import histories as judged
from oncelog_simulation.judges import shared
from oncelog_simulation.judges.committed import Batch, Committed, Prefix
from oncelog_simulation.judges.histories import Histories
from oncelog_simulation.judges.leaders import Leaders
from oncelog_simulation.judges.share_locks import Held, ShareLocks, changes_that_are_wrong
from oncelog_simulation.judges.shared import Shared
from oncelog_simulation.judges.tables import table_violations
from oncelog_simulation.workloads.groups import GroupMember
from oncelog_simulation.workloads.notes import Holder, Notes
from oncelog_simulation.workloads.sharers import accept_some
from oncelog_testing.history.events import Place

LINES = Place("lines")


class LedPartition(SimpleNamespace):
    """The attributes of a partition that the judge of leaders reads."""

    __hash__ = object.__hash__  # type: ignore[assignment]


def led(epoch: int, high_watermark: int, isr: tuple[int, ...] = (1, 2)) -> Any:
    return LedPartition(
        isr=isr,
        needed_in_sync=2,
        topic_id=b"t" * 16,
        index=0,
        leader_epoch=epoch,
        high_watermark=high_watermark,
        log=SimpleNamespace(name="lines-0"),
    )


class FakeWorld:
    """Two brokers; the test chooses which partitions each of the brokers leads."""

    def __init__(self) -> None:
        self.leading: dict[int, list[Any]] = {1: [], 2: []}
        self.noted: list[str] = []
        self.assigned: Any = None
        self.brokers = {f"broker-{number}": self._machine(number) for number in self.leading}

    def _machine(self, number: int) -> Any:
        replicas = SimpleNamespace(
            led=lambda: self.leading[number], partitions=lambda: self.leading[number], _is_closed=False
        )
        return SimpleNamespace(
            number=number,
            power_cuts=0,
            broker=SimpleNamespace(parts=SimpleNamespace(replication=SimpleNamespace(replicas=replicas))),
        )

    def note(self, actor: str, what: str, **details: object) -> None:
        self.noted.append(f"{actor} {what} {details.get('epoch')}")

    def look(self, judge: Leaders) -> list[str]:
        return [what for each in self.brokers.values() for what in judge.look(self, each)]  # type: ignore[arg-type]


def test_two_leaders_in_one_epoch_are_a_violation() -> None:
    world, judge = FakeWorld(), Leaders()
    world.leading[1] = [led(3, 5)]
    assert world.look(judge) == []
    world.leading[1], world.leading[2] = [], [led(4, 5)]
    assert world.look(judge) == []
    world.leading[2] = [led(3, 5)]
    assert world.look(judge) == ["lines-0: brokers 1 and 2 led in epoch 3"]
    assert world.noted == ["broker-1 leads 3", "broker-2 leads 4"]


def test_a_decreasing_high_watermark_is_a_violation() -> None:
    world, judge = FakeWorld(), Leaders()
    world.leading[1] = [led(3, 5)]
    world.look(judge)
    world.leading[1] = [led(3, 4)]
    assert world.look(judge) == ["lines-0: the high watermark went from 5 to 4"]
    world.leading[1] = [led(4, 2)]  # a new leader epoch may begin with a lower high watermark
    assert world.look(judge) == []


def test_a_high_watermark_that_moves_with_too_few_replicas_in_sync_is_a_violation() -> None:
    world, judge, partition = FakeWorld(), Leaders(), led(3, 5)
    world.leading[1] = [partition]
    world.look(judge)
    partition.high_watermark, partition.isr = 6, (1,)  # the ISR may have shrunk after the move, in the same turn
    assert world.look(judge) == []
    partition.high_watermark = 7
    assert world.look(judge) == ["lines-0: the high watermark moved with 1 replicas in sync, of 2 needed"]


def test_a_broker_that_stops_and_leads_again_after_it_has_resigned_everything_is_a_violation() -> None:
    world, judge, partition = FakeWorld(), Leaders(), led(3, 5)
    world.leading[1] = [partition]
    world.look(judge)
    replicas = world.brokers["broker-1"].broker.parts.replication.replicas
    replicas._is_closed, partition.is_resigned = True, True
    assert world.look(judge) == []
    partition.is_resigned = False
    assert world.look(judge) == ["lines-0: broker 1 leads again although it is stopping"]
    assert world.look(judge) == []


def test_a_prefix_knows_what_was_shown() -> None:
    prefix = Prefix()
    batches = [Batch(0, 2, 0, 11), Batch(2, 3, 0, 12), Batch(3, 9, 1, 13)]
    prefix.extend(batches, 3, 1)
    assert (prefix.end, prefix.between(0, 3)) == (3, batches[:2])
    prefix.extend(batches, 9, 2)
    assert (prefix.shown_by, prefix.between(2, 9)) == (2, batches[1:])
    prefix.cut(3)
    assert (prefix.end, prefix.between(0, 9)) == (3, batches[:2])


def test_a_prefix_begins_anew_behind_what_was_deleted_unseen() -> None:
    prefix = Prefix()
    prefix.extend([Batch(0, 2, 0, 11)], 2, 1)
    prefix.extend([Batch(5, 6, 0, 12)], 6, 1)
    assert (prefix.start, prefix.batches) == (5, [Batch(5, 6, 0, 12)])
    prefix.extend([], 8, 1)
    assert (prefix.start, prefix.end, prefix.batches) == (8, 8, [])


def histories(notes: Notes) -> Histories:
    return Histories(notes, Committed(notes))


def test_two_values_at_one_offset_are_a_violation() -> None:
    notes = Notes()
    for value in (b"a", b"b"):
        notes.history.acknowledged(notes.history.send("writer", LINES, value))
    notes.history.reading("first", LINES, is_committed=False).records = [(0, b"a")]
    notes.history.reading("second", LINES, is_committed=False).records = [(0, b"b")]
    assert histories(notes)._two_values() == [
        "TWO VALUES: second in lines-0: b'b' was read at 0, where others read b'a'"
    ]


def test_records_due_for_deletion_may_be_present_or_absent() -> None:
    notes = Notes()
    for offset, value in enumerate((b"deleted", b"kept", b"lost")):
        notes.history.acknowledged(notes.history.send("writer", LINES, value), offset)
    notes.trimmed[LINES] = 1
    notes.history.finally_holds(LINES, [(1, b"kept")])
    judge = histories(notes)
    judge._forget_trimmed()
    assert [each.partition(":")[2] for each in judge._judge()] == [" b'lost' of writer, acknowledged in lines-0"]


def test_complaints_are_told_once_and_not_after_a_power_cut_that_took_records() -> None:
    notes, world = Notes(), FakeWorld()
    judge = histories(notes)
    notes.complain(world, "zombie", "a record was accepted")  # type: ignore[arg-type]
    assert list(judge.look_closely(world)) == ["zombie: a record was accepted"]  # type: ignore[arg-type]
    assert list(judge.look_closely(world)) == []  # type: ignore[arg-type]
    judge._committed.excused.add(LINES)
    notes.complain(world, "zombie", "a record was accepted again")  # type: ignore[arg-type]
    assert list(judge.look_closely(world)) == []  # type: ignore[arg-type]


@pytest.mark.parametrize(("is_excused", "answers", "told"), [(True, 0, 0), (False, 0, 1), (True, 2, 0), (False, 2, 0)])
async def test_an_offset_stays_pending_only_after_a_power_cut_that_took_records(
    is_excused: bool, answers: int, told: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A coordinator lost the record that the offsets of a group belong to a transaction, so it wrote no marker for
    them. `answers`: the number of the request to which the coordinator returns the offset; 0 if it never does so.
    """
    requests = 0

    async def offsets(group: str, *, require_stable: bool) -> dict[TopicPartition, CommittedOffset]:
        nonlocal requests
        assert require_stable
        requests += 1
        if requests != answers:
            raise KafkaError(ErrorCode.UNSTABLE_OFFSET_COMMIT)
        return {TopicPartition("lines", 0): CommittedOffset(4, "", 0)}

    async def nothing(world: object, topics: object) -> dict[Place, list[Any]]:
        return {}

    monkeypatch.setattr(
        judged, "Admin", lambda *_, **__: nullcontext(SimpleNamespace(groups=SimpleNamespace(offsets=offsets)))
    )
    monkeypatch.setattr(judged, "content", nothing)
    monkeypatch.setattr(judged, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(judged, "SETTLE_SECONDS", 60.0 if answers else 0.01)
    client = SimpleNamespace(run=lambda read: read())
    plan = SimpleNamespace(leisure=1.0)
    world: Any = SimpleNamespace(plan=plan, client=lambda name: client, brokers={}, rotted={}, bootstrap_servers="")
    notes = Notes()
    notes.groups["copiers"] = [LINES]
    judge = histories(notes)
    if is_excused:
        judge._committed.excused.add(Place("__transaction_state"))
    found = list(await judge.conclude(world))
    assert [each.partition(" s after the calm ")[2] for each in found] == [
        "transactions hold readers back: none that can be seen"
    ] * told
    assert requests == answers or not answers


def test_s124_a_power_cut_excuses_no_partition_that_always_had_group_commit() -> None:
    def machine(flush_messages: str, **overrides: str) -> Any:
        configs = {topic: {"flush.messages": value} for topic, value in overrides.items()}
        image = SimpleNamespace(topic_configs=configs)
        parts = SimpleNamespace(membership=SimpleNamespace(metadata=SimpleNamespace(image=image)))
        return SimpleNamespace(
            settings={"log.flush.interval.messages": flush_messages}, broker=SimpleNamespace(parts=parts)
        )

    def excused(*machines: Any) -> set[str]:
        judge = Committed(Notes())
        for each in machines:
            judge._look_for_unsynced(each)
        states = {(bytes([n]), 0): SimpleNamespace(topic=topic, isr=(1,)) for n, topic in enumerate(("lines", "other"))}
        judge._truth.states = states  # type: ignore[assignment]
        world: Any = SimpleNamespace(brokers={}, note=lambda *_, **__: None)
        judge._on_power_cut(world, 1)
        return {place.topic for place in judge.excused}

    assert excused(machine("1"), machine("1", lines="1")) == set()
    assert excused(machine("1", lines="9"), machine("1")) == {"lines"}, "records of that time may not be synced"
    assert excused(machine("1"), machine("2")) == {"lines", "other"}, "one broker was without it"


def test_a_leader_that_has_resigned_in_the_same_turn_may_have_raised_its_high_watermark() -> None:
    """Seed 412527 (short): the judge took this broker for a follower whose high watermark no leader had shown."""
    judge, partition = Committed(Notes()), SimpleNamespace(topic_id=bytes(16), index=0, leader_epoch=4)
    judge._truth.states = {(bytes(16), 0): SimpleNamespace(leader=3, leader_epoch=4)}  # type: ignore[dict-item]

    def may_have_led(number: int) -> bool:
        return judge._may_have_led(SimpleNamespace(number=number), partition)  # type: ignore[arg-type]

    assert may_have_led(3)
    assert not may_have_led(2)
    partition.leader_epoch = 3
    assert not may_have_led(3)


def test_only_a_follower_may_not_show_more_than_the_judge_has_read() -> None:
    """Seed 500055 (directed): the log of a leader could not be read while it was moved to another directory."""
    judge, key = Committed(Notes()), (bytes(16), 0)
    judge._prefixes[key] = Prefix()
    state = SimpleNamespace(is_truncating=False)
    log = SimpleNamespace(name="lines-0", log_start_offset=0, log_end_offset=4, is_offline=False, state=state)
    partition: Any = SimpleNamespace(
        topic="lines", topic_id=bytes(16), index=0, leader_epoch=1, log=log, high_watermark=4, last_stable_offset=4
    )
    broker: Any = SimpleNamespace(number=3)
    partition.leads = True
    assert list(judge._check_shown(broker, partition)) == []
    partition.leads = False
    (wrong,) = judge._check_shown(broker, partition)
    assert "follows and has the high watermark 4" in wrong


def test_a_former_leader_may_show_what_it_has_shown_while_its_log_was_moved() -> None:
    """Seed 21 (directed, with more scenes): another broker led before the log of the leader could be read again."""

    def read(*arguments: object, **others: object) -> bytes:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "lines-0 is moving to another data directory")

    judge = Committed(Notes())
    log: Any = SimpleNamespace(name="lines-0", log_start_offset=0, log_end_offset=5, is_offline=False)
    log.state, log.reader = SimpleNamespace(is_truncating=False), SimpleNamespace(read=read)
    partition: Any = SimpleNamespace(
        topic="lines", topic_id=bytes(16), index=0, leader_epoch=1, log=log, high_watermark=4, last_stable_offset=4
    )
    broker: Any = SimpleNamespace(number=3)
    partition.leads = True
    judge._learn(broker, partition, is_readable=True)
    partition.leads = False
    assert list(judge._check_shown(broker, partition)) == []
    partition.high_watermark = partition.last_stable_offset = 5
    (wrong,) = judge._check_shown(broker, partition)
    assert "follows and has the high watermark 5" in wrong


def test_what_a_leader_exposes_in_the_turn_in_which_it_dies_is_known() -> None:
    """Seed 570125 (directed): followers and clients had got its responses before it died at a write."""
    judge, place = Committed(Notes()), Place("lines")
    log: Any = SimpleNamespace(name="lines-0", log_start_offset=0, log_end_offset=5, is_offline=False)
    log.state = SimpleNamespace(is_truncating=False)
    partition: Any = SimpleNamespace(
        topic="lines", topic_id=bytes(16), index=0, leader_epoch=1, log=log, leads=True, high_watermark=4
    )
    replicas = SimpleNamespace(partitions=lambda: [partition])
    machine: Any = SimpleNamespace(number=3, broker=None, ended_broker=lambda: None)
    judge._learn_from_dead(machine)
    assert place not in judge._shown
    ended = SimpleNamespace(parts=SimpleNamespace(replication=SimpleNamespace(replicas=replicas)))
    machine.ended_broker = lambda: ended
    judge._learn_from_dead(machine)
    judge._on_acknowledged(place, 3)
    partition.leads, partition.last_stable_offset = False, 4
    follower: Any = SimpleNamespace(number=2)
    assert (list(judge._check_shown(follower, partition)), judge._too_early) == ([], [])
    judge._on_acknowledged(place, 4)
    partition.high_watermark = partition.last_stable_offset = 5
    assert (len(list(judge._check_shown(follower, partition))), len(judge._too_early)) == (1, 1)


def test_a_power_cut_of_the_last_replica_excuses_its_partition_also_outside_of_the_isr() -> None:
    """Seed 310368: a broker lost its power, the next one was killed and left the ISR, and then lost its power, too."""

    def is_excused(*cuts: int) -> bool:
        judge, key = Committed(Notes()), (bytes(16), 0)
        judge._always_synced = False
        world: Any = SimpleNamespace(brokers={}, note=lambda *_, **__: None)
        judge._has_other = lambda _, __, number: number == 2  # type: ignore[method-assign]
        for number in cuts:
            judge._truth.states = {key: SimpleNamespace(topic="lines", isr=(2,))}  # type: ignore[dict-item]
            judge._on_power_cut(world, number)
        return bool(judge.excused)

    assert is_excused(2, 3)
    assert not is_excused(3), "the replica in sync still has all records"
    assert not is_excused(2), "another replica still has all records"


def test_a_record_that_a_share_group_passes_over_or_accepts_twice_is_a_violation() -> None:
    notes = Notes()
    notes.acceptances = {(LINES, b"one"), (LINES, b"two")}
    notes.confirmed = {(LINES, b"one"): 1, (LINES, b"two"): 2}
    content = {LINES: [(0, b"", b"one"), (1, b"", b"two"), (2, b"", b"three")]}
    assert list(Shared(notes, Committed(notes))._violations(content)) == [
        "lines-0: the share group has passed over b'three' at offset 2",
        "lines-0: 2 acceptances of b'two' by members of the share group were confirmed",
    ]


async def test_records_of_a_share_group_are_read_again_if_the_operator_has_just_restarted_all_brokers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    notes, reads = Notes(), [ConnectionFailed("no broker can be reached"), None]

    async def accept(self: Shared, world: object) -> None:
        failure = reads.pop(0)
        if failure is not None:
            raise failure

    async def nothing(world: object, places: object) -> dict[Place, list[Any]]:
        return {LINES: []}

    monkeypatch.setattr(Shared, "_accept_the_rest", accept)
    monkeypatch.setattr(shared, "content", nothing)
    monkeypatch.setattr(shared, "RETRY_SECONDS", 0.0)
    client = SimpleNamespace(run=lambda read: read())
    world: Any = SimpleNamespace(plan=SimpleNamespace(leisure=1.0), client=lambda name: client, struck={})
    assert list(await Shared(notes, Committed(notes)).conclude(world)) == []
    assert reads == []


def damaged_world(isr: tuple[int, ...], *damaged: str, **others: Any) -> Any:
    """Return a world with one broker, number 3, which knows the partition lines-0. `damaged`: the names of the logs on
    its disk that have a flipped bit.
    """
    topic = SimpleNamespace(name="lines", partitions={0: SimpleNamespace(isr=isr)})
    metadata = SimpleNamespace(image=SimpleNamespace(topics={"lines": topic}))
    broker = SimpleNamespace(parts=SimpleNamespace(membership=SimpleNamespace(metadata=metadata)))
    machine = SimpleNamespace(name="broker-3", number=3, broker=broker, is_serving=True)
    plan = SimpleNamespace(leisure=1.0)
    rotted = {"broker-3": set(damaged)}
    return SimpleNamespace(plan=plan, brokers={"broker-3": machine}, rotted=rotted, struck={}, now=0.0, **others)


@pytest.mark.parametrize(
    ("isr", "damaged", "is_required"),
    [
        ((3,), ("lines-0",), False),
        ((3, 1), ("lines-0",), True),
        ((1,), ("lines-0",), True),
        ((3,), ("other-0",), True),
        ((3,), (), True),
    ],
)
async def test_a_share_group_must_accept_all_records_unless_the_only_in_sync_replica_of_a_partition_is_damaged(
    isr: tuple[int, ...], damaged: tuple[str, ...], is_required: bool
) -> None:
    """In seed 300614 a bit of the group's state changed on one disk, and then the disks of both other replicas failed:
    they dropped their unsynced copies of the batch, and could not fetch it again.
    """

    async def run(read: object) -> None:
        raise TimeoutError

    world = damaged_world(isr, *damaged, client=lambda name: SimpleNamespace(run=run))
    notes = Notes()
    assert bool(list(await Shared(notes, Committed(notes)).conclude(world))) is is_required


@pytest.mark.parametrize(("isr", "is_required"), [((3,), False), ((3, 1), True)])
async def test_a_workload_must_end_unless_the_only_in_sync_replica_of_a_partition_is_damaged(
    isr: tuple[int, ...], is_required: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simulated, "CALM_SECONDS", 0.01)
    violations: list[tuple[str, str]] = []
    world = damaged_world(isr, "lines-0", violate=lambda *told: violations.append(told), note=lambda *_, **__: None)
    waiting: asyncio.Task[Any] = asyncio.create_task(asyncio.Event().wait())
    workload: Any = SimpleNamespace(name="writer-1")
    await simulated._await_workloads(world, {waiting: workload})
    told = [("liveness", "writer-1 has not ended 0.01 s after the faults")]
    assert violations == (told if is_required else [])
    assert waiting.cancelling()


def test_a_tombstone_that_is_removed_too_early_is_a_violation() -> None:
    notes = Notes()
    notes.tables["writer"] = {b"gone": {None}, b"kept": {b"1"}, b"unsure": {None, b"2"}}
    notes.deleted = {b"gone"}
    assert table_violations(notes, [(3, b"kept", b"1"), (4, b"gone", b"")]) == []
    assert table_violations(notes, [(3, b"kept", b"1")]) == ["TABLE: the tombstone of key b'gone' is gone"]
    assert table_violations(notes, [(4, b"gone", b"")]) == ["TABLE: key b'kept' holds None, of [b'1'] that it may hold"]


class FakeConsumer:
    """A consumer whose commits succeed."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    def group_metadata(self) -> Any:
        return SimpleNamespace(generation_id=self.epoch)

    async def commit(self, offsets: object) -> None:
        pass


@pytest.mark.parametrize(
    ("epoch", "owner", "is_wrong"),
    [(2, "other", True), (2, "member", False), (3, "other", False), (4, "other", False)],
)
def test_a_commit_of_a_partition_that_another_member_got_since_is_a_violation(
    epoch: int, owner: str, is_wrong: bool
) -> None:
    notes, world = Notes(), FakeWorld()
    member = GroupMember(notes, "member")
    member.owns([LINES], 3, owner)
    member.owns([LINES], 1, "a response that was late")
    asyncio.run(member._commit(world, FakeConsumer(epoch), {LINES: 7}, "member"))  # type: ignore[arg-type]
    assert bool(notes.complaints) is is_wrong


HELD = Held(4, 6, "a", 1, 20.0, is_acknowledged=False)
FREE = HELD._replace(owner="", deadline=0.0)


@pytest.mark.parametrize(
    ("before", "now", "told"),
    [
        (FREE, HELD._replace(deliveries=2), ""),
        (FREE, HELD, "does not count the delivery to a"),
        (HELD, HELD._replace(owner="b", deliveries=2, deadline=30.0), "has handed the record of a to b"),
        (HELD._replace(deadline=9.0), HELD._replace(owner="b", deliveries=2, deadline=30.0), ""),
        (HELD._replace(is_acknowledged=True), HELD._replace(owner="b", deliveries=2, deadline=30.0), ""),
        (HELD._replace(owner="c"), HELD._replace(owner="b", deliveries=2, deadline=30.0), ""),  # c has no session
        (HELD._replace(is_acknowledged=True), HELD._replace(is_acknowledged=True, deadline=0.0), ""),
        (HELD, HELD._replace(deadline=30.0), "does not count the delivery to a"),
        (HELD._replace(deliveries=3), HELD, "counts 1 deliveries after 3"),
    ],
)
def test_a_shared_record_is_with_one_member_and_each_delivery_is_counted(before: Held, now: Held, told: str) -> None:
    machine: Any = SimpleNamespace(number=1, clock=SimpleNamespace(monotonic=lambda: 10.0))
    hosted: Any = SimpleNamespace(key=SimpleNamespace(group_id="g", text="g:t:0"))
    shares: Any = SimpleNamespace(sessions=SimpleNamespace(_sessions={("g", "a"): None, ("g", "b"): None}))
    found = list(changes_that_are_wrong(machine, shares, hosted, (before,), (now,)))
    assert [each.partition("broker 1 ")[2] for each in found] == ([told] * 3 if told else [])


def world_with_share(run: SimpleNamespace, sessions: list[tuple[str, str]]) -> Any:
    """Return a world with a broker that leads one share partition, at the monotonic time 10."""
    hosted = LedPartition(is_current=True, key=SimpleNamespace(text="g:t:0", group_id="g"), share=SimpleNamespace())
    hosted.share.runs = SimpleNamespace(runs=[run])
    shares = SimpleNamespace(all=lambda: [hosted], sessions=SimpleNamespace(_sessions=dict.fromkeys(sessions)))
    parts = SimpleNamespace(coordinators=SimpleNamespace(present=SimpleNamespace(share_partitions=shares)))
    machine = SimpleNamespace(
        number=1,
        broker=SimpleNamespace(parts=parts),
        process=SimpleNamespace(is_paused=False),
        clock=SimpleNamespace(monotonic=lambda: 10.0),
    )
    return SimpleNamespace(brokers={"broker-1": machine}, now=0.0, plan=SimpleNamespace(leisure=1.0))


@pytest.mark.parametrize(("has_acknowledged", "told"), [(False, 1), (True, 0)])
def test_the_records_of_a_member_without_a_session_must_be_given_back(has_acknowledged: bool, told: int) -> None:
    """If the member had acknowledged the records, and the write of the outcome failed, they stay acquired until the
    lock expires.
    """
    run = SimpleNamespace(first=4, last=6, owner="a", deliveries=1, deadline=30.0, becomes=None)
    world, judge = world_with_share(run, sessions=[("g", "b")]), ShareLocks(Notes())
    (hosted,) = world.brokers["broker-1"].broker.parts.coordinators.present.share_partitions.all()
    if has_acknowledged:
        judge._acknowledged.add((hosted, run.first, run.owner))
    assert list(judge.look_closely(world)) == []
    world.now = 2.5
    assert len(list(judge.look_closely(world))) == told
    assert list(judge.look_closely(world)) == []


def test_an_expired_lock_must_be_given_back_soon_while_the_broker_runs() -> None:
    run = SimpleNamespace(first=4, last=6, owner="a", deliveries=1, deadline=9.0, becomes=None)
    world = world_with_share(run, sessions=[("g", "a")])
    process = world.brokers["broker-1"].process
    judge = ShareLocks(Notes())
    assert list(judge.look_closely(world)) == []
    process.is_paused, world.now = True, 5.0
    assert list(judge.look_closely(world)) == []
    process.is_paused, world.now = False, 6.0
    assert list(judge.look_closely(world)) == []
    world.now = 8.5
    assert len(list(judge.look_closely(world))) == 1
    assert list(judge.look_closely(world)) == []


def test_a_record_is_noted_with_the_member_that_the_leader_of_the_highest_epoch_names() -> None:
    notes = Notes()
    judge, world = ShareLocks(notes), SimpleNamespace(now=1.0)
    partition, share = SimpleNamespace(topic="lines", index=0), SimpleNamespace(start_offset=4)
    for epoch, owner in ((2, "a"), (1, "b")):
        hosted: Any = SimpleNamespace(partition=partition, leader_epoch=epoch, share=share)
        judge._note_holders(world, hosted, (HELD._replace(owner=owner),))  # type: ignore[arg-type]
    assert {place[1]: holder.member_id for place, holder in notes.holders.items()} == {4: "a", 5: "a", 6: "a"}
    assert notes.share_starts == {LINES: 4}


class FakeSharer:
    """A member of a share group whose acceptances are confirmed."""

    member_id = "a"

    async def poll(self, timeout_ms: int) -> list[Any]:
        return [SimpleNamespace(topic="lines", partition=0, offset=4, value=b"4", accept=lambda: None)]

    async def commit(self) -> dict[Place, None]:
        return {LINES: None}


@pytest.mark.parametrize(
    ("holder", "start", "is_counted", "is_wrong"),
    [
        (None, 0, True, False),
        (Holder("a", 1, 1.0), 5, True, False),
        (Holder("b", 1, 1.0), 0, False, True),
        (Holder("b", 1, 1.0), 5, False, False),  # the other member has accepted the record
        (Holder("b", 1, 3.0), 0, False, False),  # the record was delivered to the other member before this acceptance
    ],
)
def test_an_acceptance_of_a_record_that_another_member_has_is_a_violation(
    holder: Holder | None, start: int, is_counted: bool, is_wrong: bool
) -> None:
    notes, world = Notes(), FakeWorld()
    world.now = 2.0  # type: ignore[attr-defined]
    notes.share_starts[LINES] = start
    if holder is not None:
        notes.holders[LINES, 4] = holder
    asyncio.run(accept_some(world, notes, FakeSharer(), None))  # type: ignore[arg-type]
    assert notes.acceptances == {(LINES, b"4")}
    assert bool(notes.confirmed) is is_counted
    assert bool(notes.complaints) is is_wrong
