"""Leader epochs are written when they begin and synced with the records, and survive a kill or a power cut."""

from __future__ import annotations

from contextlib import suppress
from random import Random

import pytest
from tests.support.crashing_disk import CrashingDisk, CrashingFile, Killed
from tests.support.storage import append, open_log

from oncelog_broker.log.partition_log import PartitionLog
from oncelog_broker.log.segments.batch_scan import scan_headers

DIRECTORY = "/logs/orders-0"
LAST_EPOCH = 12


def lead_on(log: PartitionLog, random: Random) -> None:
    """Let several leaders lead in turn: some append no record, and the log is flushed now and then."""
    for epoch in range(1, LAST_EPOCH + 1):
        for _ in range(random.randrange(3)):
            append(log, b"v", epoch=epoch)
        if random.random() < 0.4:
            log.flusher.flush()
        if random.random() < 0.2 and log.log_end_offset:
            log.trimmer.delete_records_before(random.randrange(log.log_end_offset))


@pytest.mark.parametrize("is_power_cut", [False, True], ids=["kill", "power cut"])
def test_every_remaining_record_has_a_known_epoch(is_power_cut: bool) -> None:
    checked = 0
    for seed in range(150):
        random = Random(seed)
        disk = CrashingDisk(random)
        log = open_log(DIRECTORY, disk=disk)
        disk.sync_directory("/")
        disk.sync_directory("/logs")
        disk.changes_left = random.randrange(120)
        with suppress(Killed):
            lead_on(log, random)
        before = log
        if is_power_cut:
            disk.cut_power()
        else:
            disk.kill()
        log = open_log(
            DIRECTORY, disk=disk, recovery_point=before.recovery_point, log_start_offset=before.log_start_offset
        )
        assert log.log_end_offset >= before.recovery_point, seed
        log.trimmer.roll()
        for segment in log.trimmer.closed_segments:
            for batch in scan_headers(segment.file, 0, segment.size):
                if batch.base_offset >= log.log_start_offset:
                    known = log.leader_epochs.epoch_for_offset(batch.base_offset)
                    assert known == batch.leader_epoch, (seed, batch)
                    checked += 1
        log.close()
    assert checked > 300


def test_the_beginning_of_an_epoch_syncs_nothing() -> None:
    disk = CrashingDisk(Random(0))
    log = open_log(DIRECTORY, disk=disk)
    log.flusher.flush()

    def too_slow(*_: object) -> None:
        raise AssertionError("it would hold up the loop")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(CrashingDisk, "sync_directory", too_slow)
        patched.setattr(CrashingFile, "sync", too_slow)
        append(log, b"v", epoch=1)
        append(log, b"v", epoch=2)
        log.trimmer.delete_records_before(1)
    log.flusher.flush()
    assert [entry.epoch for entry in log.leader_epochs.entries] == [2]
