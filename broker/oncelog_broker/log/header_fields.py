"""A batch header as `HEADER.unpack_from` gives it, and where its fields are in that.

A plain tuple, since one is made for every batch that is produced, followed or replayed: a class with names would cost
more than all that is read of it.
"""

from __future__ import annotations

from typing import Final

HeaderFields = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int]

FIRST_OFFSET: Final = 0
"""The batch's base offset."""
BATCH_LENGTH: Final = 1
"""Of what follows this field, in bytes."""
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
