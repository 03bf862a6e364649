"""Decompresses the records of a batch: small batches in the calling thread, large ones in a job for another thread.
Batches that may decompress to many bytes are processed one after another, so that only one such batch is in memory at a
time.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from oncelog_broker.runtime.steps import HeavyJob, Steps
from oncelog_protocol.records.batch import RecordBatch
from oncelog_protocol.records.columns import records_data
from oncelog_protocol.records.compression import RecordsTooLarge

PACKED_IN_PLACE: Final = 64 * 1024
"""Batches of up to this many compressed bytes are first tried in the calling thread, because a job in another thread
would cost more.
"""
UNPACKED_IN_PLACE: Final = 512 * 1024
"""The maximum number of bytes that are decompressed in the calling thread, which takes half a millisecond."""
UNPACKED_BESIDE_OTHERS: Final = 8 * 1024 * 1024
"""The maximum number of decompressed bytes of a batch that is decompressed simultaneously with other batches; nearly
all client batches are smaller.
"""


def unpacked(batch: RecordBatch, max_bytes: int) -> Steps[bytes]:
    """Return the decompressed records of `batch`, at most `max_bytes`. The steps (a generator) raise CorruptBatch,
    RecordsTooLarge.
    """
    if batch.size <= PACKED_IN_PLACE:
        try:
            return records_data(batch, min(UNPACKED_IN_PLACE, max_bytes))
        except RecordsTooLarge:
            pass  # the batch may be too large only for this thread, so a job for another thread decompresses it
    data: bytes | None = yield partial(_beside_others, batch, max_bytes)
    if data is None:
        data = yield HeavyJob(partial(records_data, batch, max_bytes))
    assert data is not None
    return data


def _beside_others(batch: RecordBatch, max_bytes: int) -> bytes | None:
    """Return the decompressed records; None if they exceed UNPACKED_BESIDE_OTHERS. A result that is too large is not
    reported by an exception, because a traceback would keep the data in memory.
    """
    try:
        return records_data(batch, min(UNPACKED_BESIDE_OTHERS, max_bytes))
    except RecordsTooLarge:
        if max_bytes <= UNPACKED_BESIDE_OTHERS:
            raise
        return None
