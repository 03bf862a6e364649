"""Known differences that appear only with the settings of oncelog's broker that remove other differences."""

from __future__ import annotations

from typing import Final

from tests.interop.differential.register import Known

ERROR: Final = "error_code"

KNOWN: Final = (
    # With log.record.validation=full the oncelog broker reads the same bytes as Kafka, and refuses more of them,
    Known("odd-records", "odd_batches.records", ERROR, 0, 87, label="record: delta*"),
    Known("odd-records", "odd_batches.records", ERROR, 0, 87, label="record: key length -2"),
    Known("unreadable-code", "odd_batches.compressed_garbage", ERROR, -1, 87),
    # and refuses them before the broker asks the coordinator whether the partition is in the transaction.
    Known("producer-without-epoch", "transactions.produce_in_one", ERROR, 47, 87, label="epoch -1"),
)
