"""Checks before a transactional append that the coordinator knows the transaction in this partition (KIP-890).

A record that arrives after the end of its transaction (a late Produce, E2) would open a transaction that nobody ends,
and the last stable offset would never advance again. So before the first batch of a transaction in a partition, the
coordinator is asked whether the partition is in the transaction; for producers of transactions V2 it is added (T7).

The coordinator may be another broker, and its answer may be late. The append takes a guard before the question
(`replication/verification_guards.py`), so that a marker between question and append makes it fail (E3).

If the image of this broker is out of date, the broker that is asked may be a former coordinator: it may take a
transaction for open that its successor has ended. If the successor's marker is in the log, the log has a later
coordinator epoch than the image, and the append is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final

from oncelog_broker.coordinator.transaction.coordinator import TransactionCoordinator
from oncelog_broker.coordinator.transaction.metadata import TopicPartition
from oncelog_broker.log.producers.entry import NO_COORDINATOR_EPOCH
from oncelog_broker.replication.partition import Partition
from oncelog_broker.replication.purgatory import no_longer_than
from oncelog_broker.runtime.answers import Answer, then
from oncelog_broker.runtime.tasks import Deadlines
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.features import TRANSACTIONS_V2
from oncelog_protocol.producer_id import ProducerIdAndEpoch

ANSWER_SECONDS: Final = 10.0
"""Without an answer of the coordinator in this time, the producer is told to send the batch again."""


def check_in_transaction(
    coordinator: TransactionCoordinator,
    transactional_id: str,
    producer: ProducerIdAndEpoch,
    partitions: Iterable[Partition],
    deadlines: Deadlines,
    *,
    registers: bool,
) -> Answer[KafkaError | None]:
    """Returns None if `producer` may append to all of `partitions` in its open transaction; with `registers` they are
    added to it.

    Else the error: TRANSACTION_ABORTABLE (not in the transaction), INVALID_PRODUCER_EPOCH, INVALID_PRODUCER_ID_MAPPING,
    INVALID_TXN_STATE (the transaction was taken over, S120); CONCURRENT_TRANSACTIONS or NOT_ENOUGH_REPLICAS if sending
    the batch again helps.
    """
    not_open = [partition for partition in partitions if not partition.log.has_open_transaction(*producer)]
    if not not_open or not (registers or coordinator.verifies):
        return None
    epoch = coordinator.epoch_of(transactional_id)
    if any(_last_coordinator(partition, producer) > epoch for partition in not_open):
        return KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, f"{producer} has a later coordinator than is known here")
    unknown = [TopicPartition(partition.topic, partition.index) for partition in not_open]
    answer = no_longer_than(
        ANSWER_SECONDS, _ask(coordinator, transactional_id, producer, unknown, registers), deadlines
    )
    return then(answer, partial(_error_of, producer, unknown, registers))


def _last_coordinator(partition: Partition, producer: ProducerIdAndEpoch) -> int:
    """The epoch of the coordinator whose marker of this producer is the last in the log; -1 if there is none."""
    known = partition.log.producer_state.get(producer.producer_id)
    return NO_COORDINATOR_EPOCH if known is None else known.coordinator_epoch


def _error_of(
    producer: ProducerIdAndEpoch, unknown: list[TopicPartition], registers: bool, code: ErrorCode
) -> KafkaError | None:
    if code is ErrorCode.NONE:
        return None
    if code is ErrorCode.PRODUCER_FENCED:
        return KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, f"{producer} is fenced")
    if code.retriable and not (registers and code is ErrorCode.CONCURRENT_TRANSACTIONS):
        return KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, f"the transaction of {producer} is not verified: {code.name}")
    return KafkaError(code, f"{producer}: " + ", ".join("-".join(map(str, where)) for where in unknown))


def _ask(
    coordinator: TransactionCoordinator,
    transactional_id: str,
    producer: ProducerIdAndEpoch,
    unknown: list[TopicPartition],
    registers: bool,
) -> Answer[ErrorCode]:
    broker_id = coordinator.elsewhere(transactional_id)
    if broker_id is not None:
        return coordinator.remote.ask(broker_id, transactional_id, producer, unknown, registers=registers)
    if registers:
        return coordinator.add_partitions(transactional_id, producer, unknown, TRANSACTIONS_V2)
    return then(coordinator.verify(transactional_id, producer, unknown), _first_error)


def _first_error(codes: dict[TopicPartition, ErrorCode]) -> ErrorCode:
    return next((code for code in codes.values() if code is not ErrorCode.NONE), ErrorCode.NONE)
