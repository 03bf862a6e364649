"""Tests the search for a record by timestamp, in a batch with very many records, and in a batch that is too large for
the broker to decompress.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.storage import NOW, make_batch, open_log

from oncelog_broker.log.config import LogConfig
from oncelog_broker.runtime.steps import run_steps
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.records.batch import BASE_TIMESTAMP_AT
from oncelog_protocol.records.compression import Compression
from oncelog_protocol.records.record_scan import SCAN_CHUNK


def test_the_records_of_a_large_batch_are_unpacked_elsewhere_and_walked_with_pauses_up_to_the_first(
    tmp_path: Path,
) -> None:
    count = 40 * SCAN_CHUNK
    log = open_log(tmp_path / "orders-0", LogConfig())
    times = [NOW + number // SCAN_CHUNK for number in range(count)]
    log.append_as_leader(
        make_batch(*[b"v" * 30] * count, timestamps=times, compression=Compression.ZSTD), leader_epoch=3
    )
    steps = log.reader.offset_for_timestamp(NOW + 5, upper_bound=count)
    job = next(steps)
    assert callable(job)
    pauses = 0
    try:
        steps.send(job())
        while True:
            pauses += 1
            next(steps)
    except StopIteration as finished:
        assert finished.value == (5 * SCAN_CHUNK, NOW + 5, 3)
    assert pauses == 5
    log.close()


def test_the_first_offset_stands_for_a_batch_that_is_too_large_to_look_into(tmp_path: Path) -> None:
    log = open_log(tmp_path / "orders-0", LogConfig(message_max_decompressed_bytes=1 << 20))
    log.append_as_leader(make_batch(b"before"), leader_epoch=3)
    huge = make_batch(*[b"v" * 200_000] * 6, timestamps=range(NOW, NOW + 6), compression=Compression.ZSTD)
    log.append_as_leader(huge, leader_epoch=3)
    assert run_steps(log.reader.offset_for_timestamp(NOW + 3, upper_bound=7)) == (1, NOW + 5, 3)
    assert run_steps(log.reader.max_timestamp_offset()) == (1, NOW + 5, 3)
    log.close()


@pytest.mark.parametrize("size", [1, 100_000])
def test_a_flipped_bit_does_not_hide_a_record_that_a_consumer_must_read(tmp_path: Path, size: int) -> None:
    """With the changed timestamp, the search would find a later record than the first."""
    log = open_log(tmp_path / "orders-0", LogConfig())
    log.append_as_leader(make_batch(b"1" * size, b"2", timestamps=[NOW + 2, NOW + 4]), leader_epoch=3)
    assert run_steps(log.reader.offset_for_timestamp(NOW + 2, upper_bound=2)) == (0, NOW + 2, 3)
    (path,) = (tmp_path / "orders-0").glob("*.log")
    with path.open("r+b") as file:
        content = file.read()
        file.seek(BASE_TIMESTAMP_AT + 6)
        file.write(bytes([content[BASE_TIMESTAMP_AT + 6] ^ 1]))
    for steps in (
        log.reader.offset_for_timestamp(NOW + 2, upper_bound=2),
        log.reader.max_timestamp_offset(upper_bound=1),
    ):
        with pytest.raises(KafkaError) as raised:
            run_steps(steps)
        assert raised.value.code is ErrorCode.CORRUPT_MESSAGE
    log.close()
