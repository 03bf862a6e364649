"""Some settings of oncelog's broker remove known differences; this module lists known differences that appear only with
these settings.
"""

from __future__ import annotations

from typing import Final

from tests.interop.differential.register import Known

ERROR: Final = "error_code"

KNOWN: Final = (
    # With log.record.validation=full, the oncelog broker validates the same bytes as Kafka, but refuses more batches,
    Known("odd-records", "odd_batches.records", ERROR, 0, 87, label="record: delta*"),
    Known("odd-records", "odd_batches.records", ERROR, 0, 87, label="record: key length -2"),
    Known("unreadable-code", "odd_batches.compressed_garbage", ERROR, -1, 87),
    # and refuses these batches before the coordinator verifies that the partition is in the transaction.
    Known("producer-without-epoch", "transactions.produce_in_one", ERROR, 47, 87, label="epoch -1"),
)
