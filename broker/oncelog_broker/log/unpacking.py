"""Decompresses the records of a batch: small ones at once, large ones as a job in another thread. Batches that may
decompress to many bytes are processed one at a time, so that the memory is bounded by one of them."""

from __future__ import annotations

from functools import partial
from typing import Final

from oncelog_broker.runtime.steps import HeavyJob, Steps
from oncelog_protocol.records.batch import RecordBatch
from oncelog_protocol.records.columns import records_data
from oncelog_protocol.records.compression import RecordsTooLarge

PACKED_IN_PLACE: Final = 64 * 1024
"""Up to how many compressed bytes a batch is first tried in this thread: another thread would cost more."""
UNPACKED_IN_PLACE: Final = 512 * 1024
"""Up to how many bytes it may decompress to in this thread: half a millisecond."""
UNPACKED_BESIDE_OTHERS: Final = 8 * 1024 * 1024
"""Up to how many bytes a batch may decompress to while other batches do; nearly all batches of clients are smaller."""


def unpacked(batch: RecordBatch, max_bytes: int) -> Steps[bytes]:
    """The records of `batch`, decompressed, of at most `max_bytes`. The steps raise CorruptBatch, RecordsTooLarge."""
    if batch.size <= PACKED_IN_PLACE:
        try:
            return records_data(batch, min(UNPACKED_IN_PLACE, max_bytes))
        except RecordsTooLarge:
            pass  # perhaps too large for this thread only
    data: bytes | None = yield partial(_beside_others, batch, max_bytes)
    if data is None:
        data = yield HeavyJob(partial(records_data, batch, max_bytes))
    assert data is not None
    return data


def _beside_others(batch: RecordBatch, max_bytes: int) -> bytes | None:
    """The records; None if they are too large for this. It is not an exception, whose traceback would keep the data in
    memory."""
    try:
        return records_data(batch, min(UNPACKED_BESIDE_OTHERS, max_bytes))
    except RecordsTooLarge:
        if max_bytes <= UNPACKED_BESIDE_OTHERS:
            raise
        return None
