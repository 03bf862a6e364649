"""Differences that only show where the settings of our broker that take other differences away are made."""

from __future__ import annotations

from typing import Final

from tests.interop.differential.register import Known

ERROR: Final = "error_code"

KNOWN: Final = (
    # log.record.validation=full reads what Kafka reads, and believes less of it
    Known("odd-records", "odd_batches.records", ERROR, 0, 87, label="record: delta*"),
    Known("odd-records", "odd_batches.records", ERROR, 0, 87, label="record: key length -2"),
    Known("unreadable-code", "odd_batches.compressed_garbage", ERROR, -1, 87),
    # and so before the coordinator is asked whether the partition is in the transaction
    Known("producer-without-epoch", "transactions.produce_in_one", ERROR, 47, 87, label="epoch -1"),
)
