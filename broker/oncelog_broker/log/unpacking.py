"""Unpacking the records of a batch: small ones on the spot, large ones as a job for another thread, and those that a
few bytes unpack to very many one at a time: however many come at once, the memory is that of one."""

from __future__ import annotations

from functools import partial
from typing import Final

from oncelog_broker.runtime.steps import HeavyJob, Steps
from oncelog_protocol.records.batch import RecordBatch
from oncelog_protocol.records.columns import records_data
from oncelog_protocol.records.compression import RecordsTooLarge

PACKED_IN_PLACE: Final = 64 * 1024
"""Bytes of a batch up to which it is first tried here: a thread costs more than that."""
UNPACKED_IN_PLACE: Final = 512 * 1024
"""What it may unpack to then: half a millisecond."""
UNPACKED_BESIDE_OTHERS: Final = 8 * 1024 * 1024
"""What a batch may unpack to while others do, too; nearly all batches of clients are smaller."""


def unpacked(batch: RecordBatch, max_bytes: int) -> Steps[bytes]:
    """The records of `batch`, decompressed, of at most `max_bytes`. The steps raise CorruptBatch, RecordsTooLarge."""
    if batch.size <= PACKED_IN_PLACE:
        try:
            return records_data(batch, min(UNPACKED_IN_PLACE, max_bytes))
        except RecordsTooLarge:
            pass  # only for here, perhaps
    data: bytes | None = yield partial(_beside_others, batch, max_bytes)
    if data is None:
        data = yield HeavyJob(partial(records_data, batch, max_bytes))
    assert data is not None
    return data


def _beside_others(batch: RecordBatch, max_bytes: int) -> bytes | None:
    """None: it is too large for that. No error, whose traceback would keep what comes after it."""
    try:
        return records_data(batch, min(UNPACKED_BESIDE_OTHERS, max_bytes))
    except RecordsTooLarge:
        if max_bytes <= UNPACKED_BESIDE_OTHERS:
            raise
        return None
