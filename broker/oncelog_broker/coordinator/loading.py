"""Replaying a log into its state machine, in steps that let other work in between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from oncelog_broker.coordinator.shard import Machine, Shard
from oncelog_broker.runtime.steps import Steps
from oncelog_protocol.records.batch import NO_PRODUCER_ID, RecordBatch, batches
from oncelog_protocol.records.control import ControlType, read_marker
from oncelog_protocol.records.record import read_records

LOAD_CHUNK_BYTES: Final = 256 * 1024
"""Read from the log at once while loading."""
RECORDS_PER_STEP: Final = 32
"""Records replayed before others may have their turn."""


def replay_log(shard: Shard[Any], offset: int, is_current: Callable[[], bool]) -> Steps[int]:
    """All of the log from `offset` on; up to where. Also what is not on all replicas in sync yet: as this broker leads
    it will be, and replies wait for it. Ends early where `is_current` says that this broker leads the partition no
    more. Raises what reading and decoding raise: KafkaError, CorruptBatch, ValueError."""
    log = shard.partition.log
    while offset < log.log_end_offset and is_current():
        chunk = log.read(offset, LOAD_CHUNK_BYTES, upper_bound=log.log_end_offset, min_one_batch=True)
        if not len(chunk):  # the rest of the log was compacted away
            return log.log_end_offset
        for batch in batches(chunk):
            offset = batch.next_offset
            yield from _replay_batch(shard.machine, batch)
        yield None
    return offset


def _replay_batch(machine: Machine, batch: RecordBatch) -> Steps[None]:
    """Replay one batch; yields now and then, for other work."""
    if batch.is_control:
        marker = read_marker(batch)
        if marker is not None:
            machine.replay_end_transaction(batch.producer_id, marker.control_type is ControlType.COMMIT)
        return
    producer_id = batch.producer_id if batch.is_transactional else NO_PRODUCER_ID
    for number, record in enumerate(read_records(batch)):
        if record.key is None:
            continue
        decoded = machine.decode(record.key, record.value)
        if decoded is not None:
            machine.replay(decoded, record.offset, producer_id)
        if number % RECORDS_PER_STEP == 0:
            yield None
