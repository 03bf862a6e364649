"""Appends the batches of a transactional Produce request, after the coordinator has confirmed that their transaction is
open (KIP-890).

The coordinator is called once for all partitions of a request where possible (`Verification.ask`). The coordinator's
verdict for a partition is valid until a marker or a new leader epoch, because the transaction may then have ended in
this partition. After such an event, and for a request of one batch, the coordinator is called again for this partition
alone. While a verdict is pending, a guard (an object that a marker invalidates) ensures that no marker is written
between the call and the append: otherwise the record would open a transaction that no coordinator ends (E3).
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final, NoReturn

from oncelog.fail_points.point import fail_point
from oncelog_broker.coordinator.transaction.metadata import TopicPartition
from oncelog_broker.coordinator.transaction.verification import (
    check_each_in_transaction,
    check_in_transaction,
    refused_by_coordinator,
)
from oncelog_broker.log.config import LogConfig
from oncelog_broker.replication.partition import Partition
from oncelog_broker.replication.verification_guards import Guard
from oncelog_broker.runtime.answers import Answer, then
from oncelog_broker.server.records.services import RecordContext, RecordServices
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.features import TRANSACTIONS_V2
from oncelog_protocol.producer_id import ProducerIdAndEpoch
from oncelog_protocol.records.batch import BASE_SEQUENCE, BASE_SEQUENCE_AT, PRODUCER, PRODUCER_AT

FIRST_TRANSACTIONS_V2_VERSION: Final = 12
"""First version of Produce with transactions V2: the producer has a new epoch for each transaction (KIP-890, T6)."""

Appended = tuple[int, int]
"""Type of an append's result: base offset, and log append time in ms or -1."""


class Verification:
    """The coordinator's verdicts about the partitions of one request."""

    __slots__ = ("verdicts",)

    def __init__(self) -> None:
        self.verdicts: dict[Partition, tuple[int, KafkaError | None]] = {}
        """For each partition: the value of `VerificationGuards.ends` (number of possible transaction ends) when the
        coordinator was called, and the coordinator's error or None. If `ends` has changed since, the partition must be
        verified again.
        """

    def ask(
        self,
        services: RecordServices,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Iterable[Partition],
        *,
        registers: bool,
    ) -> Answer[KafkaError | None]:
        """Verify all `partitions` in one call; with `registers` (transactions V2) the call also adds either all or none
        of the partitions to the transaction. Returns the error that refuses the entire request, or None.
        """
        closed = [
            partition for partition in partitions if not partition.log.producer_state.has_open_transaction(*producer)
        ]
        if not closed:
            return None
        ends = [partition.guards.ends for partition in closed]
        coordinator = services.transactions
        usual = coordinator.usual_transactions(transactional_id)
        if usual is not None:
            asked = frozenset([TopicPartition(partition.topic, partition.index) for partition in closed])
            epochs = [partition.log.producer_state.coordinator_epoch(producer.producer_id) for partition in closed]
            code: ErrorCode | None
            if registers:
                code = usual.register(*producer, asked, max(epochs))
            else:
                code = ErrorCode.NONE if usual.has_open(*producer, asked, max(epochs)) else None
            if code is ErrorCode.NONE:
                return self._note_all(closed, ends, None)
            if code is not None:
                return refused_by_coordinator(producer, sorted(asked), code, registers=True)
        if registers:
            refused = check_in_transaction(
                coordinator, transactional_id, producer, closed, services.deadlines, registers=True
            )
            return then(refused, partial(self._note_all, closed, ends))
        verdicts = check_each_in_transaction(coordinator, transactional_id, producer, closed, services.deadlines)
        return then(verdicts, partial(self._note_each, closed, ends))

    def _note_all(
        self, partitions: list[Partition], ends: list[int], refused: KafkaError | None
    ) -> Answer[KafkaError | None]:
        if refused is None:
            for partition, end in zip(partitions, ends, strict=True):
                self.verdicts[partition] = end, None
        return refused

    def _note_each(
        self, partitions: list[Partition], ends: list[int], verdicts: Mapping[Partition, KafkaError | None]
    ) -> Answer[KafkaError | None]:
        for partition, end in zip(partitions, ends, strict=True):
            if partition in verdicts:
                self.verdicts[partition] = end, verdicts[partition]
        return None


def _not_appended() -> NoReturn:
    raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)


@fail_point("append", dropped=_not_appended)
def append_in_transaction(
    partition: Partition,
    records: memoryview,
    required_acks: int,
    transactional_id: str,
    context: RecordContext,
    verification: Verification | None,
) -> Answer[Appended | KafkaError]:
    """Append a batch if the partition is in the open transaction; under transactions V2 the partition is added to the
    transaction (T7). `verification` has the coordinator's verdicts for the entire request, or is None. If the log
    requires a check of each record, the caller has already made the check; the check is repeated if the log's settings
    have changed when the coordinator responds. Some errors are raised as KafkaError instead of being returned.
    """
    is_v2 = context.version >= FIRST_TRANSACTIONS_V2_VERSION
    version = TRANSACTIONS_V2 if is_v2 else 0
    producer_id, epoch = PRODUCER.unpack_from(records, PRODUCER_AT)
    producers, config = partition.log.producer_state, partition.log.state.config
    services, refused_sequences = context.services, context.services.transactions.refused_sequences
    verdict = None if verification is None else verification.verdicts.get(partition)
    if verdict is not None and verdict[0] != partition.guards.ends:
        verdict = None
    if (
        producers.has_open_transaction(producer_id, epoch)
        if verdict is None
        else verdict[1] is None and not refused_sequences.lowest
    ):
        return partition.append(records, required_acks=required_acks, transaction_version=version, records_checked=True)
    producer = ProducerIdAndEpoch(producer_id, epoch)
    refused: Answer[KafkaError | None]
    if verdict is not None:
        refused = verdict[1]
    else:
        refused = check_in_transaction(
            services.transactions, transactional_id, producer, [partition], services.deadlines, registers=is_v2
        )
    where = TopicPartition(partition.topic, partition.index)
    if not is_v2 and producers.takes_any_sequence(producer_id):
        (sequence,) = BASE_SEQUENCE.unpack_from(records, BASE_SEQUENCE_AT)
        refused = then(refused, partial(refused_sequences.after_verification, where, producer, sequence))

    def append(guard: Guard | None, refused: KafkaError | None) -> Answer[Appended | KafkaError]:
        if refused is not None:
            return refused
        outcome = _append(partition, records, required_acks, version, guard, walked_for=config)
        if not isinstance(outcome, KafkaError):
            refused_sequences.forget(where, producer_id)
        return outcome

    if not isinstance(refused, Future):
        return append(None, refused)  # no guard needed: the verdict came at once, before any marker
    late = refused
    return partition.guards.during(producer_id, epoch, lambda guard: then(late, partial(append, guard)))


def _append(
    partition: Partition,
    records: memoryview,
    required_acks: int,
    version: int,
    guard: Guard | None,
    *,
    walked_for: LogConfig,
) -> Appended | KafkaError:
    try:
        return partition.append(
            records,
            required_acks=required_acks,
            transaction_version=version,
            guard=guard,
            records_checked=partition.log.state.config is walked_for,
        )
    except KafkaError as error:
        return error.as_value()
