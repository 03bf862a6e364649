"""Unpacking the records of a batch: small ones on the spot, large ones as a job for another thread."""

from __future__ import annotations

from functools import partial
from typing import Final

from oncelog_broker.runtime.steps import Steps
from oncelog_protocol.records.batch import RecordBatch
from oncelog_protocol.records.columns import records_data
from oncelog_protocol.records.compression import RecordsTooLarge

PACKED_IN_PLACE: Final = 64 * 1024
"""Bytes of a batch up to which it is first tried here: a thread costs more than that."""
UNPACKED_IN_PLACE: Final = 512 * 1024
"""What it may unpack to then: half a millisecond."""


def unpacked(batch: RecordBatch, max_bytes: int) -> Steps[bytes]:
    """The records of `batch`, decompressed, of at most `max_bytes`. The steps raise CorruptBatch, RecordsTooLarge."""
    if batch.size <= PACKED_IN_PLACE:
        try:
            return records_data(batch, min(UNPACKED_IN_PLACE, max_bytes))
        except RecordsTooLarge:
            pass  # only for here, perhaps
    data: bytes = yield partial(records_data, batch, max_bytes)
    return data
