"""The judges find their violations, and find none in a correct run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from oncelog_simulation.judges.committed import Batch, Committed, Prefix
from oncelog_simulation.judges.histories import Histories
from oncelog_simulation.judges.leaders import Leaders
from oncelog_simulation.judges.shared import Shared
from oncelog_simulation.workloads.notes import Notes
from oncelog_testing.history.events import Place

LINES = Place("lines")


class LedPartition(SimpleNamespace):
    """The attributes of a partition that the judge of leaders reads."""

    __hash__ = object.__hash__  # type: ignore[assignment]


def led(epoch: int, high_watermark: int) -> Any:
    return LedPartition(
        topic_id=b"t" * 16,
        index=0,
        leader_epoch=epoch,
        high_watermark=high_watermark,
        log=SimpleNamespace(name="lines-0"),
    )


class FakeWorld:
    """Two brokers whose leaderships the test chooses."""

    def __init__(self) -> None:
        self.leading: dict[int, list[Any]] = {1: [], 2: []}
        self.noted: list[str] = []
        self.brokers = {f"broker-{number}": self._machine(number) for number in self.leading}

    def _machine(self, number: int) -> Any:
        replicas = SimpleNamespace(led=lambda: self.leading[number])
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


def test_a_record_that_a_share_group_passes_over_or_accepts_twice_is_a_violation() -> None:
    notes = Notes()
    notes.acceptances = {(LINES, b"one"), (LINES, b"two")}
    notes.confirmed = {(LINES, b"one"): 1, (LINES, b"two"): 2}
    content = {LINES: [(0, b"", b"one"), (1, b"", b"two"), (2, b"", b"three")]}
    assert list(Shared(notes, Committed(notes))._violations(content)) == [
        "lines-0: the share group has passed over b'three' at offset 2",
        "lines-0: 2 acceptances of b'two' by members of the share group were confirmed",
    ]
