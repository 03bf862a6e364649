"""A transaction that hangs, and a broker on which one may.

A Produce that arrives after the end of its transaction opens one that no client ends (E2), if partitions are not
verified.
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
    """The producer of a transaction that hangs at offset 2 of the new topic, behind a committed one."""
    client.create_topic(topic)
    txn = RawTransactions(client, topic)
    hang(txn, topic)
    return txn


def hang(txn: RawTransactions, topic: str) -> None:
    """Have a transaction of this producer hang at offset 2 of the empty topic, behind a committed one."""
    old = txn.take_over()
    txn.write(topic)
    assert txn.end() == ErrorCode.NONE
    eventually(lambda: is_stable(txn.client, topic), "the transaction is complete")
    assert txn.produce(topic, asking=old) == ErrorCode.NONE, "E2's late Produce, unguarded"
    assert last_stable_offset(txn.client, topic) == 2
