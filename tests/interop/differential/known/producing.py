"""Known differences in Produce."""

from __future__ import annotations

from typing import Final

from tests.interop.differential.comparison import ABSENT
from tests.interop.differential.register import NOWHERE, Known
from tests.interop.differential.side import NO_ANSWER

ERROR: Final = "error_code"
KAFKAS_CODES: Final = "idempotence.duplicate.classification=kafka"
READING_ALL: Final = "log.record.validation=full"
LONG_VALUE: Final = "record: value longer than the record"

KNOWN: Final = (
    Known("older-duplicates", "produce.duplicates", ERROR, 45, 46, label="too old *", setting=KAFKAS_CODES),
    Known("older-duplicates", "produce.duplicates", ERROR, 45, 46, label="part: *", setting=KAFKAS_CODES),
    Known("older-duplicates", "produce.sequences_wrap", ERROR, 45, 46, label="part: *", setting=KAFKAS_CODES),
    Known("older-duplicates", "walk.produce.*", ERROR, 45, 46, seen_in=NOWHERE, setting=KAFKAS_CODES),
    Known("older-duplicates", "walk.moves.*", ERROR, 45, 46, seen_in=NOWHERE, setting=KAFKAS_CODES),
    Known("moved-producers", "directories.producers_move", ERROR, 45, 0, label="old duplicate"),
    Known("used-again", "transactions.sequences_used_again", ERROR, 0, 59, label="used again *", setting=KAFKAS_CODES),
    Known("records-unread", "odd_batches.records", ERROR, 87, 0, label=LONG_VALUE, setting=READING_ALL),
    Known("records-unread", "odd_batches.compressed_garbage", ERROR, -1, 0, setting=READING_ALL),
    Known("records-unread", "odd_batches.record_timestamps", ERROR, 32, 0, setting=READING_ALL),
    Known("records-unread", "odd_batches.record_timestamps", "", 0, -1, setting=READING_ALL),
    Known("records-unread", "produce.timestamps", "record_errors", label="limits, gzip: *", setting=READING_ALL),
    Known("unreadable-code", "odd_batches.records", ERROR, -1, 87, label="*: garbage"),
    Known("first-fault", "odd_batches.records", "record_errors", label="compacted: *"),
    Known("null-records", "odd_batches.framing", "", NO_ANSWER, label="null"),
    Known("bytes-behind-a-batch", "odd_batches.framing", ERROR, 0, 87, label="a byte to spare"),
    Known("bytes-behind-a-batch", "odd_batches.framing", ERROR, 0, 87, label="the second is cut"),
    Known("broken-framing-code", "odd_batches.framing", ERROR, 2, 87, label="61 zero bytes"),
    Known("broken-framing-code", "odd_batches.framing", ERROR, 2, 87, label="magic *"),
    Known("broken-framing-code", "odd_batches.framing", ERROR, 87, 2, label="cut by one byte"),
    Known("broken-framing-code", "odd_batches.framing", ERROR, 87, 2, label="length 2^30"),
    Known("unknown-codec", "odd_batches.headers", ERROR, -1, 76, label="codec *"),
    Known("log-append-time-bit", "odd_batches.headers", ERROR, 0, 32, label="LogAppendTime bit"),
    Known("log-append-time-bit", "odd_batches.headers", "offset", 1, 0, label="after LogAppendTime bit"),
    Known("producer-without-epoch", "produce.odd_producers", ERROR, 0, 87, label="id with epoch -1"),
    Known("compression-type", "odd_batches.compression_type", "records.*", api="Fetch"),
    Known("named-twice", "produce.many_partitions", "partition_responses", label="partition twice"),
    Known("named-twice", "produce.many_partitions", "responses", label="topic twice"),
    Known("topic-without-partitions", "produce.many_partitions", "responses.*", ABSENT, label="no partitions"),
)
