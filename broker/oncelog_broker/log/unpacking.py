"""Decompresses the records of a batch, or checks its CRC: small batches in the calling thread, large ones in a job for
another thread.
To limit the memory, no two batches that may have very large records are decompressed at the same time.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from oncelog_broker.runtime.steps import HeavyJob, Steps
from oncelog_protocol.records.batch import CorruptBatch, RecordBatch
from oncelog_protocol.records.columns import records_data
from oncelog_protocol.records.compression import RecordsTooLarge

PACKED_IN_PLACE: Final = 64 * 1024
"""A batch of up to this many compressed bytes is decompressed in the calling thread if its records are small, because a
job in another thread would cost more.
"""
UNPACKED_IN_PLACE: Final = 512 * 1024
"""The maximum number of decompressed bytes for which the calling thread decompresses a batch itself; this takes half a
millisecond.
"""
UNPACKED_BESIDE_OTHERS: Final = 8 * 1024 * 1024
"""The maximum number of decompressed bytes of a batch that is decompressed simultaneously with other batches; nearly
all client batches are smaller.
"""


def check_crc(batch: RecordBatch) -> Steps[None]:
    """Check the CRC of `batch` before the caller drops records, or chooses an offset, because of its content. The steps
    (a generator) raise CorruptBatch.
    """
    if batch.size <= PACKED_IN_PLACE:
        _check_crc(batch)
    else:
        yield partial(_check_crc, batch)


def _check_crc(batch: RecordBatch) -> None:
    if not batch.crc_is_valid():
        raise CorruptBatch(f"the CRC of {batch!r} is wrong")


def unpacked(batch: RecordBatch, max_bytes: int) -> Steps[bytes]:
    """Return the decompressed records of `batch`, at most `max_bytes`. The steps (a generator) raise CorruptBatch,
    RecordsTooLarge.
    """
    if batch.size <= PACKED_IN_PLACE:
        try:
            return records_data(batch, min(UNPACKED_IN_PLACE, max_bytes))
        except RecordsTooLarge:
            pass  # the records are too large for this thread: try a job below
    data: bytes | None = yield partial(_beside_others, batch, max_bytes)
    if data is None:
        data = yield HeavyJob(partial(records_data, batch, max_bytes))
    assert data is not None
    return data


def _beside_others(batch: RecordBatch, max_bytes: int) -> bytes | None:
    """Return the decompressed records; None if they exceed UNPACKED_BESIDE_OTHERS. None is returned instead of an
    exception, because the traceback of an exception would keep the data in memory.
    """
    try:
        return records_data(batch, min(UNPACKED_BESIDE_OTHERS, max_bytes))
    except RecordsTooLarge:
        if max_bytes <= UNPACKED_BESIDE_OTHERS:
            raise
        return None
