"""The guard before a transactional append: no record of a transaction that its coordinator knows nothing of (KIP-890).

A record that comes when its transaction has ended (a late Produce, E2) would open one that nobody ends, and the last
stable offset would stand still for ever. So before the first batch of a transaction in a partition, the coordinator is
asked whether the partition is in the transaction; for producers that work by transactions V2 it is added (T7).

The answer holds as long as nothing is awaited between it and the append: no marker can come in between (E3).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from oncelog_broker.coordinator.transaction.coordinator import TransactionCoordinator
from oncelog_broker.coordinator.transaction.metadata import TRANSACTIONS_V2, Producer, TopicPartition
from oncelog_broker.replication.partition import Partition
from oncelog_protocol.errors import ErrorCode, KafkaError


def check_in_transaction(
    coordinator: TransactionCoordinator,
    transactional_id: str,
    producer: Producer,
    partitions: Iterable[Partition],
    *,
    registers: bool,
) -> None:
    """Return if `producer` may append to all of `partitions` in its open transaction; with `registers` they are added.

    Raises KafkaError TRANSACTION_ABORTABLE (not in the transaction), INVALID_PRODUCER_EPOCH,
    INVALID_PRODUCER_ID_MAPPING; CONCURRENT_TRANSACTIONS or NOT_ENOUGH_REPLICAS where it helps to come again.
    """
    unknown = [
        TopicPartition(partition.topic, partition.index)
        for partition in partitions
        if not partition.log.has_open_transaction(*producer)
    ]
    if not unknown or not (registers or coordinator.verifies):
        return
    code = _ask(coordinator, transactional_id, producer, unknown, registers)
    if code is ErrorCode.NONE:
        return
    if code is ErrorCode.PRODUCER_FENCED:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, f"{producer} is fenced")
    if code.retriable and not (registers and code is ErrorCode.CONCURRENT_TRANSACTIONS):
        raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, f"the transaction of {producer} is not verified: {code.name}")
    raise KafkaError(code, f"{producer}: " + ", ".join("-".join(map(str, where)) for where in unknown))


def _ask(
    coordinator: TransactionCoordinator,
    transactional_id: str,
    producer: Producer,
    unknown: list[TopicPartition],
    registers: bool,
) -> ErrorCode:
    if not registers:
        try:
            codes = coordinator.verify(transactional_id, producer, unknown)
        except KafkaError as error:
            return error.code
        for code in codes.values():
            if code is not ErrorCode.NONE:
                return code
        return ErrorCode.NONE
    answer = coordinator.add_partitions(transactional_id, producer, unknown, TRANSACTIONS_V2)
    if isinstance(answer, asyncio.Future):
        # Logged, and not on all replicas yet. To wait here would let a marker come in between; the producer comes again
        # at once, and by then the partitions are in the transaction.
        return ErrorCode.CONCURRENT_TRANSACTIONS
    return answer
