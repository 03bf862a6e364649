"""Creates a hanging transaction, and a broker on which transactions can hang.

If partitions are not verified, a Produce request that arrives after the end of its transaction opens a new transaction,
which no client ends (E2).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from broker_process import BrokerProcess
from foreign_clients import eventually
from raw_client import RawClient
from raw_transactions import RawTransactions, is_stable, last_stable_offset

from oncelog_protocol.errors import ErrorCode

UNGUARDED: Final = {"transaction.partition.verification.enable": "false"}


@contextmanager
def unguarded_broker(data: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(data, UNGUARDED) as process:
        yield process
    assert "Traceback" not in process.log.read_text()


def hung(client: RawClient, topic: str) -> RawTransactions:
    """Create the topic, and return the producer of a transaction that hangs at offset 2, after a committed
    transaction.
    """
    client.create_topic(topic)
    txn = RawTransactions(client, topic)
    hang(txn, topic)
    return txn


def hang(txn: RawTransactions, topic: str) -> None:
    """Make a transaction of this producer hang at offset 2 of the empty topic, after a committed transaction."""
    old = txn.take_over()
    txn.write(topic)
    assert txn.end() == ErrorCode.NONE
    eventually(lambda: is_stable(txn.client, topic), "the transaction is complete")
    assert txn.produce(topic, asking=old) == ErrorCode.NONE, "E2's late Produce, unguarded"
    assert last_stable_offset(txn.client, topic) == 2
