"""The type of a batch header as a plain tuple (the result of `HEADER.unpack_from`), and the index of each field in that
tuple.

The type is a plain tuple because a header is created for every batch that is produced, fetched by a follower, or read
to restore the producer state: creating an object with named fields would cost more than all accesses to the fields.
"""

from __future__ import annotations

from typing import Final

HeaderFields = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int]

FIRST_OFFSET: Final = 0
"""The batch's base offset."""
BATCH_LENGTH: Final = 1
"""The number of bytes of the batch that follow this field."""
MAGIC: Final = 3
CRC: Final = 4
ATTRIBUTES: Final = 5
LAST_OFFSET_DELTA: Final = 6
BASE_TIMESTAMP: Final = 7
MAX_TIMESTAMP: Final = 8
PRODUCER_ID: Final = 9
PRODUCER_EPOCH: Final = 10
BASE_SEQUENCE: Final = 11
RECORDS_COUNT: Final = 12
