"""The judge of durability finds how much of a log is on a simulated disk, and which acknowledgements came too early."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from oncelog_broker.log.segments.segment import LOG_SUFFIX, file_prefix
from oncelog_protocol.records.builder import build_batch
from oncelog_protocol.records.record import Record
from oncelog_simulation.judges.committed import Committed
from oncelog_simulation.judges.durable import Durable, durable_end
from oncelog_simulation.storage import Storage
from oncelog_simulation.workloads.notes import Notes
from oncelog_testing.history.events import Place

DIRECTORY = "/data/lines-0"
SECOND_BASE = 3


class Hosted(SimpleNamespace):
    """A partition, which is hashed by its identity."""

    __hash__ = object.__hash__


def batch(offset: int) -> bytes:
    return bytes(build_batch([Record(0, 0, b"k", b"v", [])], base_offset=offset))


def log_of(storage: Storage, *segments: tuple[int, int, int]) -> Any:
    """Return a log with segments of (base offset, synced batches, further batches), one record in each batch."""
    storage.make_directories(DIRECTORY)
    end = 0
    for base, synced, unsynced in segments:
        file = storage.make_file(f"{DIRECTORY}/{file_prefix(base)}{LOG_SUFFIX}")
        end = base + synced + unsynced
        file.write(0, b"".join(map(batch, range(base, base + synced))))
        file.sync()
        file.write(len(file.data), b"".join(map(batch, range(base + synced, end))))
    bases = [SimpleNamespace(base_offset=base) for base, _, _ in segments]
    return SimpleNamespace(directory=DIRECTORY, local=SimpleNamespace(segments=bases, log_end_offset=end))


def test_the_end_of_a_log_that_is_synced_is_its_log_end() -> None:
    storage = Storage()
    assert durable_end(storage, log_of(storage, (0, SECOND_BASE, 0), (SECOND_BASE, 2, 0))) == SECOND_BASE + 2


def test_the_first_batch_that_is_not_synced_ends_the_durable_part() -> None:
    storage = Storage()
    assert durable_end(storage, log_of(storage, (0, SECOND_BASE, 0), (SECOND_BASE, 1, 4))) == SECOND_BASE + 1
    storage = Storage()
    assert durable_end(storage, log_of(storage, (0, 1, 2), (SECOND_BASE, 2, 0))) == 1


def test_a_truncated_log_that_the_disk_has_longer_is_durable() -> None:
    storage = Storage()
    log = log_of(storage, (0, 3, 0))
    file = storage.file(f"{DIRECTORY}/{file_prefix(0)}{LOG_SUFFIX}")
    file.truncate(2 * len(batch(0)))
    log.local.log_end_offset = 2
    assert durable_end(storage, log) == 2


def test_a_file_whose_sync_has_failed_is_not_judged() -> None:
    storage = Storage()
    log = log_of(storage, (0, 1, 2))
    file = storage.file(f"{DIRECTORY}/{file_prefix(0)}{LOG_SUFFIX}")
    file.fail_sync()
    file.sync()
    assert durable_end(storage, log) == 3


def test_an_acknowledgement_above_all_high_watermarks_is_too_early() -> None:
    notes = Notes()
    notes.careless["careless"] = 1
    judge = Committed(notes)
    judge._shown[Place("lines")] = 5
    for topic, offset in (("lines", 4), ("careless", 9), ("lines", 5)):
        notes.history.acknowledged(notes.history.send("anna", Place(topic), b"v"), offset)
    assert judge._too_early == ["lines-0: offset 5 was acknowledged, but all high watermarks were at most 5"]


def test_a_snapshot_above_the_log_end_is_noticed_when_a_truncation_has_finished() -> None:
    """The truncation ends in a later turn than the one that raises the log's generation."""
    storage = Storage()
    content = log_of(storage, (0, SECOND_BASE, 0))
    storage.make_file(f"{DIRECTORY}/{file_prefix(SECOND_BASE + 1)}.snapshot")
    state = SimpleNamespace(is_truncating=False, synced_offset=0, recovery_point=0)
    log = SimpleNamespace(
        **vars(content),
        name="lines-0",
        state=state,
        trimmer=SimpleNamespace(generation=0),
        log_end_offset=SECOND_BASE,
        is_offline=False,
        is_paused=False,
    )
    partition: Any = Hosted(log=log, high_watermark=0, leads=False)
    replicas = SimpleNamespace(partitions=lambda: [partition])
    machine: Any = SimpleNamespace(number=1, name="broker-1", storage=storage)
    machine.broker = SimpleNamespace(parts=SimpleNamespace(replication=SimpleNamespace(replicas=replicas)))
    world: Any = SimpleNamespace(rotted={}, assigned=None)
    judge = Durable(Committed(Notes()))
    assert list(judge.look(world, machine)) == []
    log.trimmer.generation, state.is_truncating = 1, True
    assert list(judge.look(world, machine)) == []
    state.is_truncating = False
    assert list(judge.look(world, machine)) == ["lines-0: broker 1 has a snapshot at 4, and ends at 3"]
