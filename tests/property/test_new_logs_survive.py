"""Random walks in which topics are created, deleted and re-created, and the process is killed at any change of the
disk.

A walk is generated from a seed and uses two data directories. After a start there must be no checkpoint of a deleted
log, no record of another topic with the same name, and no record whose permanent deletion was reported. All synced
records must be there and, after a kill, all written records.

`make soak` runs more walks. A failure prints the steps of its walk, whose seed repeats the walk exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random

import pytest
from tests.support.crashing_disk import CrashingDisk, Killed
from tests.support.storage import NOW, SMALL, append, contents

from oncelog_broker.log.directories.log_changes import WantedLog
from oncelog_broker.log.directories.log_manager import LogManager
from oncelog_broker.log.partition_log import PartitionLog
from oncelog_broker.log.pending_flush import PendingFlush
from oncelog_broker.runtime.clock import ManualClock

DIRECTORIES = ("/disk1/oncelog/data", "/disk2/data")
NAMES = ("orders", "payments", "returns")
WALKS = [range(first, first + 50) for first in range(0, 150, 50)]
SOAK = [range(first, first + 1000) for first in range(150, 10_150, 1000)]
STEPS = 80
GAP = 7
"""The number of offsets between the end of a log and the offset at which the log continues after it was emptied."""


class Topic:
    """A topic with a single partition, and what the model knows about the partition's records."""

    def __init__(self, name: str, number: int) -> None:
        self.wanted = WantedLog(name, 0, bytes([number % 256]) * 16, SMALL)
        self.log: PartitionLog | None = None
        self.end = 0
        self.synced = 0
        self.high_watermark = 0
        self.deleted_up_to = 0
        """No record below this offset may reappear."""
        self.flushing: PendingFlush | None = None
        self.is_being_emptied = False

    def value(self, offset: int) -> bytes:
        return b"%s %d %070d" % (self.wanted.topic_id.hex().encode() if self.wanted.topic_id else b"", offset, 0)


class Walk:
    """One walk. `run` raises AssertionError if an invariant fails."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.disk = CrashingDisk(self.random)
        self.disk.syncs_file_system = seed % 2 == 1
        self.clock = ManualClock(NOW)
        self.made = 0
        self.topics: dict[str, Topic] = {}
        self.path: list[str] = []
        """The steps so far, which a failure prints."""
        self.start()

    def run(self) -> None:
        for _ in range(STEPS):
            step = self.random.choices(ALL_STEPS, WEIGHTS)[0]
            name = self.random.choice(NAMES)
            self.path.append(f"{step.__name__} {name}")
            with suppress(Killed):
                step(self, name)
            if self.disk.changes_left is not None and self.disk.changes_left < 0:
                self.come_back()

    # --- steps of the walk -------------------------------------------------------------------------------------------

    def with_log(self, name: str) -> tuple[Topic, PartitionLog] | None:
        topic = self.topics.get(name)
        return None if topic is None or topic.log is None else (topic, topic.log)

    def make(self, name: str) -> None:
        if name not in self.topics:
            self.made += 1
            self.topics[name] = Topic(name, self.made)
        self.open_all()

    def open_all(self) -> None:
        """Open all partitions that have no log yet, in one call."""
        topics = [topic for topic in self.topics.values() if topic.log is None]
        opening = self.manager.begin_opening([topic.wanted for topic in topics])
        opening.run()
        for topic, log in zip(topics, self.manager.finish_opening(opening), strict=True):
            assert isinstance(log, PartitionLog), log
            topic.log = log

    def delete(self, name: str) -> None:
        if self.topics.pop(name, None) is not None:
            self.manager.delete(name, 0)

    def make_anew(self, name: str) -> None:
        """Delete and re-create a topic while high watermarks that were read before the deletion are written to the
        checkpoint.
        """
        write = self.manager.begin_high_watermarks(self.high_watermarks())
        self.delete(name)
        self.make(name)
        write()

    def produce(self, name: str) -> None:
        if found := self.with_log(name):
            topic, log = found
            for _ in range(self.random.choice([1, 3, 20])):
                assert append(log, topic.value(topic.end)) == topic.end
                topic.end += 1

    def roll(self, name: str) -> None:
        if found := self.with_log(name):
            found[1].trimmer.roll()

    def flush(self, name: str) -> None:
        if found := self.with_log(name):
            topic, log = found
            log.flusher.flush()
            topic.synced = topic.end

    def begin_flush(self, name: str) -> None:
        if (found := self.with_log(name)) and found[0].flushing is None:
            found[0].flushing = found[1].flusher.prepare_flush()

    def end_flush(self, name: str) -> None:
        if (found := self.with_log(name)) and (flushing := found[0].flushing) is not None:
            topic, log = found
            topic.flushing = None
            flushing.sync()
            log.flusher.finish_flush(flushing)
            topic.synced = max(topic.synced, flushing.up_to)
            topic.deleted_up_to = max(topic.deleted_up_to, log.state.durable_start_offset)

    def empty(self, name: str) -> None:
        """Empty a log, like a follower whose leader's log starts after the end of the follower's log."""
        if found := self.with_log(name):
            topic, log = found
            topic.synced, topic.is_being_emptied, topic.flushing = 0, True, None
            log.trimmer.truncate_fully_and_start_at(topic.end + GAP)
            topic.end, topic.is_being_emptied = topic.end + GAP, False

    def cut(self, name: str) -> None:
        """Truncate a log, perhaps to an offset before its start, like a follower of a new leader that was not in sync
        and has fewer records.
        """
        if found := self.with_log(name):
            topic, log = found
            offset = self.random.randint(0, topic.end)
            kept = 0 if offset <= log.log_start_offset else min(topic.synced, offset)
            topic.synced, topic.is_being_emptied, topic.flushing = 0, True, None
            topic.deleted_up_to = min(topic.deleted_up_to, offset)
            log.trimmer.truncate_to(offset)
            assert log.log_end_offset == offset
            topic.end, topic.synced, topic.is_being_emptied = offset, kept, False

    def high_watermarks(self) -> dict[tuple[str, int], int]:
        for topic in self.topics.values():
            if topic.log is not None:
                topic.high_watermark = max(topic.high_watermark, self.random.choice([0, topic.end, topic.end // 2]))
        return {(name, 0): topic.high_watermark for name, topic in self.topics.items() if topic.log is not None}

    def checkpoint_high_watermarks(self, name: str) -> None:
        self.manager.checkpoint_high_watermarks(self.high_watermarks())

    def checkpoint_recovery_points(self, name: str) -> None:
        self.manager.checkpoint_recovery_points()

    def delete_records(self, name: str) -> None:
        if found := self.with_log(name):
            topic, log = found
            log.trimmer.delete_records_before(self.random.choice([topic.end, self.random.randint(0, topic.end)]))
            # the follower reports its durable log start to its leader
            topic.deleted_up_to = max(topic.deleted_up_to, log.state.durable_start_offset)
            self.manager.checkpoint_log_start_offsets()
            topic.deleted_up_to = max(topic.deleted_up_to, log.state.durable_start_offset)

    def restart(self, name: str) -> None:
        self.manager.close()
        for topic in self.topics.values():
            topic.synced = topic.end
        self.start()

    def kill_soon(self, name: str) -> None:
        if self.disk.changes_left is None:
            self.disk.changes_left = self.random.randint(0, 40)

    # --- restarting --------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start and open the topics as a broker does. Raises Killed."""
        for topic in self.topics.values():
            topic.log = topic.flushing = None
        self.manager = LogManager.open(
            DIRECTORIES, node_id=1, cluster_id="c", disk=self.disk, clock=self.clock, config_of=lambda topic: SMALL
        )
        assert not self.manager.failures
        for name, index in self.manager.partitions():
            topic = self.topics.get(name)
            if topic is None or self.manager.topic_id(name, index) not in (None, topic.wanted.topic_id):
                self.manager.set_aside(name, index)
        self.manager.note_missing([(name, 0) for name in self.topics])
        assert not self.manager.failures, "a checkpoint speaks of what is gone"
        for key, high_watermark in self.manager.high_watermarks().items():
            assert high_watermark <= self.topics[key[0]].high_watermark
        self.open_all()

    def come_back(self) -> None:
        """Start again until no kill interrupts the startup, then compare the content of the logs with the model."""
        lost_power = False
        while True:
            if self.random.random() < 0.3:
                self.disk.kill()
                self.path.append("kill")
            else:
                self.disk.cut_power()
                self.path.append("power cut")
                lost_power = True
            if self.random.random() < 0.3:
                self.disk.changes_left = self.random.randint(0, 40)
            try:
                self.start()
                break
            except Killed:
                continue
        self.disk.changes_left = None
        for topic in self.topics.values():
            self.check(topic, lost_power=lost_power)

    def check(self, topic: Topic, *, lost_power: bool) -> None:
        log = topic.log
        assert log is not None
        assert topic.synced <= log.log_end_offset
        assert lost_power or topic.is_being_emptied or log.log_end_offset >= topic.end, "a kill loses nothing"
        if topic.is_being_emptied and log.log_end_offset == 0:
            topic.deleted_up_to = 0  # the log is empty, and its leader tells it at which offset to start
        topic.is_being_emptied = False
        assert log.log_start_offset >= topic.deleted_up_to
        topic.deleted_up_to = max(topic.deleted_up_to, log.state.durable_start_offset)
        found = contents(log)
        assert found == [(offset, topic.value(offset)) for offset, _ in found]
        topic.end = log.log_end_offset


Step = Callable[[Walk, str], None]
STEP_WEIGHTS: dict[Step, int] = {
    Walk.make: 12,
    Walk.delete: 3,
    Walk.make_anew: 3,
    Walk.produce: 20,
    Walk.roll: 2,
    Walk.flush: 4,
    Walk.begin_flush: 3,
    Walk.end_flush: 3,
    Walk.checkpoint_high_watermarks: 6,
    Walk.checkpoint_recovery_points: 5,
    Walk.delete_records: 5,
    Walk.empty: 2,
    Walk.cut: 3,
    Walk.restart: 2,
    Walk.kill_soon: 10,
}
ALL_STEPS, WEIGHTS = list(STEP_WEIGHTS), list(STEP_WEIGHTS.values())


@pytest.mark.parametrize("seeds", [*WALKS, *(pytest.param(seeds, marks=pytest.mark.soak) for seeds in SOAK)], ids=str)
def test_no_checkpoint_outlives_the_log_that_it_speaks_of(seeds: range) -> None:
    for seed in seeds:
        walk = Walk(seed)
        try:
            walk.run()
        except BaseException as error:
            error.add_note(f"in walk {seed}: {'; '.join(walk.path)}")
            raise
