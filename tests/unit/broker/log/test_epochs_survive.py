"""Leader epochs are written when they begin and synced with the records, and survive a kill or a power cut."""

from __future__ import annotations

from contextlib import suppress
from random import Random

import pytest
from tests.support.crashing_disk import CrashingDisk, CrashingFile, Killed
from tests.support.storage import append, open_log

from oncelog_broker.log.leader_epochs import LEADER_EPOCH_FILE, LeaderEpochs
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
@pytest.mark.parametrize("is_start_checkpointed", [False, True], ids=["start not checkpointed", "start checkpointed"])
def test_every_remaining_record_has_a_known_epoch(is_start_checkpointed: bool, is_power_cut: bool) -> None:
    """Without a checkpoint of the log start, deleted records are readable again after the crash (seed 300526)."""
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
        start = before.log_start_offset if is_start_checkpointed else 0
        log = open_log(DIRECTORY, disk=disk, recovery_point=before.recovery_point, log_start_offset=start)
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


@pytest.mark.parametrize("log_start_offset", range(5))
@pytest.mark.parametrize("recovery_point", range(6))
@pytest.mark.parametrize("deleted_up_to", range(1, 6))
def test_deleted_records_that_a_kill_makes_readable_again_have_their_epochs(
    deleted_up_to: int, recovery_point: int, log_start_offset: int
) -> None:
    """DeleteRecords removes leader epochs from the file, and the process is killed before the new log start is
    checkpointed (seed 300526).
    """
    disk = CrashingDisk(Random(0))
    log = open_log(DIRECTORY, disk=disk)
    for epoch in (0, 1, 1, 3, 3):
        append(log, b"v", epoch=epoch)
    log.trimmer.delete_records_before(deleted_up_to)
    disk.kill()
    log = open_log(DIRECTORY, disk=disk, recovery_point=recovery_point, log_start_offset=log_start_offset)
    known = [log.leader_epochs.epoch_for_offset(offset) for offset in range(log_start_offset, 5)]
    assert known == [0, 1, 1, 3, 3][log_start_offset:]
    assert log.leader_epochs.entries == LeaderEpochs.load(disk, f"{DIRECTORY}/{LEADER_EPOCH_FILE}").entries
    log.close()


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
