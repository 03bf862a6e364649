"""Checks the files of the stopped brokers after a run that was ended before its clients could be queried."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from final_state import batches_in, digests

from oncelog_broker.log.checkpoints import HIGH_WATERMARK_CHECKPOINT, read_offset_checkpoint
from oncelog_broker.runtime.disk import RealDisk
from oncelog_protocol.records.batch import RecordBatch
from oncelog_protocol.records.control import ControlType, read_marker
from oncelog_protocol.records.record import read_records
from oncelog_testing.history.checker import violations
from oncelog_testing.history.events import Place, ReplicaLog
from oncelog_testing.history.recorder import History
from oncelog_testing.history.verdict import SHOWN
from soak.plan import BROKERS


def what_files_say(directory: Path, history: History) -> list[str]:
    """Return all contradictions between the files and the responses that the clients got."""
    note_files(history, directory, {send.place for send in history.sends})
    found = violations(history)
    return [f"by the files: {violation}" for violation in found[:SHOWN]] + (
        [f"by the files: {len(found)} violations in all"] if len(found) > SHOWN else []
    )


def note_files(history: History, directory: Path, places: Iterable[Place]) -> None:
    """Record the contents of the files in place of readers' records and brokers' responses, because no broker runs. If
    the replicas end at different offsets, the replica that would be elected counts; all replicas must be equal below
    their checkpointed high watermarks.
    """
    high_watermarks = {
        node_id: read_offset_checkpoint(RealDisk(), str(directory / f"broker{node_id}" / HIGH_WATERMARK_CHECKPOINT))
        for node_id in BROKERS
    }
    history.replicas.clear()
    for place in places:
        logs = {node_id: batches_in(directory / f"broker{node_id}" / str(place)) for node_id in BROKERS}
        history.finally_holds(place, committed(max(logs.values(), key=_rank)))
        for node_id, batches in logs.items():
            history.replica(ReplicaLog(node_id, place, high_watermarks[node_id].get(place, 0), digests(batches)))


def committed(batches: Sequence[RecordBatch]) -> list[tuple[int, bytes]]:
    """Return offset and value of the records that a read_committed consumer would find."""
    found: list[tuple[int, bytes]] = []
    undecided: defaultdict[int, list[tuple[int, bytes]]] = defaultdict(list)
    for batch in batches:
        if batch.is_control:
            marker, decided = read_marker(batch), undecided.pop(batch.producer_id, [])
            if marker is not None and marker.control_type is ControlType.COMMIT:
                found += decided
            continue
        records = [(record.offset, bytes(record.value or b"")) for record in read_records(batch)]
        (undecided[batch.producer_id] if batch.is_transactional else found).extend(records)
    return sorted(found)


def _rank(batches: Sequence[RecordBatch]) -> tuple[int, int]:
    return (batches[-1].partition_leader_epoch, batches[-1].next_offset) if batches else (-1, 0)
