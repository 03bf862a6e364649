"""Producer snapshots and transaction indexes are printed as Kafka's DumpLogSegments prints them."""

from pathlib import Path

from tests.support.producers import ABORT, mark, produce
from tests.support.storage import NOW, open_log

from oncelog_broker.dump.files import DumpOptions, dump_file, known_files
from oncelog_broker.dump.rows import Fault, Row


def written(directory: Path) -> Path:
    log = open_log(directory)
    produce(log, 1, 0, 3)
    produce(log, 2, 0, 2, transactional=True)
    mark(log, 2, ABORT, epoch=1, coordinator_epoch=4)
    produce(log, 3, 0, transactional=True)
    log.close()
    return directory


def lines(path: Path) -> list[str]:
    return [item.as_text() for item in dump_file(path, DumpOptions()) if isinstance(item, Row)]


def test_s57_a_producer_snapshot_is_dumped(tmp_path: Path) -> None:
    directory = written(tmp_path / "orders-0")
    assert lines(directory / f"{7:020d}.snapshot") == [
        "producerId: 1 producerEpoch: 0 coordinatorEpoch: -1 currentTxnFirstOffset: None "
        f"lastTimestamp: {NOW} firstSequence: 0 lastSequence: 2 lastOffset: 2 offsetDelta: 2 timestamp: {NOW}",
        f"producerId: 2 producerEpoch: 1 coordinatorEpoch: 4 currentTxnFirstOffset: None lastTimestamp: {NOW}",
        "producerId: 3 producerEpoch: 0 coordinatorEpoch: -1 currentTxnFirstOffset: 6 "
        f"lastTimestamp: {NOW} firstSequence: 0 lastSequence: 0 lastOffset: 6 offsetDelta: 0 timestamp: {NOW}",
    ]


def test_s57_a_transaction_index_is_dumped(tmp_path: Path) -> None:
    directory = written(tmp_path / "orders-0")
    assert lines(directory / f"{0:020d}.txnindex") == [
        "version: 0 producerId: 2 firstOffset: 3 lastOffset: 5 lastStableOffset: 6"
    ]


def test_a_directory_shows_them_too_and_damage_is_a_fault(tmp_path: Path) -> None:
    directory = written(tmp_path / "orders-0")
    found = {path.suffix: path for path in known_files((directory,))}
    for suffix in (".snapshot", ".txnindex"):
        path = found[suffix]
        path.write_bytes(path.read_bytes()[:-1])
        (fault,) = dump_file(path, DumpOptions())
        assert isinstance(fault, Fault)
