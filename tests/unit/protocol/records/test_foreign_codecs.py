"""kafka-python and aiokafka decode oncelog's batches, and oncelog decodes theirs."""

import warnings

import aiokafka.record.default_records as aiokafka_records
import pytest
from aiokafka.record.control_record import ABORT_MARKER, COMMIT_MARKER, ControlRecord

from oncelog_protocol.records.batch import RecordBatch
from oncelog_protocol.records.builder import build_batch
from oncelog_protocol.records.compression import Compression
from oncelog_protocol.records.control import ControlType, EndTransactionMarker, marker_batch
from oncelog_protocol.records.record import Record, read_records

with warnings.catch_warnings():  # kafka-python reads its schemas by a deprecated call
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.record.default_records as kafka_python_records

NOW = 1_700_000_000_000
RECORDS = [
    Record(0, NOW, b"key", b"value" * 30, []),
    Record(1, NOW + 3, None, b"", [("trace", b"\x00\x01"), ("none", None)]),
    Record(2, NOW - 100, b"", None, []),
    *(Record(offset, NOW + offset * 37, b"k%d" % offset, b"v" * offset * 7, []) for offset in range(3, 150)),
]
KAFKA_PYTHON_CODECS = [Compression.NONE, Compression.GZIP]
"""The codecs that kafka-python supports without further libraries."""

LIBRARIES = [
    *(pytest.param(aiokafka_records, codec, id=f"aiokafka-{codec.name}") for codec in Compression),
    *(pytest.param(kafka_python_records, codec, id=f"kafka-python-{codec.name}") for codec in KAFKA_PYTHON_CODECS),
]


@pytest.mark.parametrize(("library", "codec"), LIBRARIES)
def test_foreign_codecs_read_our_batches(library, codec):
    raw = build_batch(RECORDS, compression=codec, producer_id=5, producer_epoch=1, base_sequence=9, transactional=True)
    theirs = library.DefaultRecordBatch(bytes(raw))
    assert theirs.validate_crc()
    assert theirs.is_transactional
    assert [Record(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in theirs] == RECORDS


@pytest.mark.parametrize(("library", "codec"), LIBRARIES)
def test_our_codec_reads_foreign_batches(library, codec):
    builder = library.DefaultRecordBatchBuilder(
        magic=2, compression_type=codec, is_transactional=1, producer_id=5, producer_epoch=1, base_sequence=9,
        batch_size=1 << 20,
    )  # fmt: skip
    for r in RECORDS:
        assert builder.append(r.offset, r.timestamp, r.key, r.value, r.headers)
    batch = RecordBatch(bytes(builder.build()))
    assert batch.crc_is_valid()
    assert batch.compression == codec
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.is_transactional) == (5, 1, 9, True)
    assert list(read_records(batch)) == RECORDS


def test_uncompressed_bytes_are_the_same():
    builder = kafka_python_records.DefaultRecordBatchBuilder(
        magic=2, compression_type=0, is_transactional=0, producer_id=-1, producer_epoch=-1, base_sequence=-1,
        batch_size=1 << 20,
    )  # fmt: skip
    for r in RECORDS:
        builder.append(r.offset, r.timestamp, r.key, r.value, r.headers)
    theirs, ours = bytes(builder.build()), bytes(build_batch(RECORDS))
    assert ours[61:] == theirs[61:]
    assert ours[27:61] == theirs[27:61]


def test_kafka_python_and_aiokafka_agree_with_us_on_commit_and_abort():
    for control_type in ControlType:
        raw = marker_batch(EndTransactionMarker(control_type, 1), producer_id=1, producer_epoch=0, timestamp=NOW)
        (theirs,) = kafka_python_records.DefaultRecordBatch(bytes(raw))
        assert theirs.commit is (control_type is ControlType.COMMIT)
        assert theirs.abort is (control_type is ControlType.ABORT)
        (ours,) = read_records(RecordBatch(raw))
        parsed = ControlRecord.parse(ours.key)
        assert parsed == (COMMIT_MARKER if control_type is ControlType.COMMIT else ABORT_MARKER)
