"""Appends the batches of a transactional Produce request, once it is verified that their transaction is open (KIP-890).

The coordinator is asked once for all partitions of a request where that is possible (`Verification.ask`). Its answer is
valid for a partition until an event there may have ended the transaction: a marker, or another leader epoch. Then, and
for a request of one batch, the coordinator is asked again for that partition only. While an answer is pending a guard
ensures that no marker comes between the question and the append: the record would open a transaction that no
coordinator ends (E3).
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final, NoReturn

from oncelog.fail_points.point import fail_point
from oncelog_broker.coordinator.transaction.metadata import TopicPartition
from oncelog_broker.coordinator.transaction.verification import check_each_in_transaction, check_in_transaction
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
"""A transactional producer that sends this version has an epoch of its own for each transaction (KIP-890, T6)."""

Appended = tuple[int, int]
"""Base offset, log append time in ms or -1."""


class Verification:
    """The coordinator's answer about the partitions of one request."""

    __slots__ = ("verdicts",)

    def __init__(self) -> None:
        self.verdicts: dict[Partition, tuple[int, KafkaError | None]] = {}
        """Per partition: `VerificationGuards.ends` when the coordinator was asked, and the error it answered, or
        None. With another number of ends the partition must be verified again."""

    def ask(
        self,
        services: RecordServices,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Iterable[Partition],
        *,
        registers: bool,
    ) -> Answer[KafkaError | None]:
        """Ask about all `partitions` at once; with `registers` (transactions V2) they are added to the transaction, all
        or none. The answer is why the whole request is refused, or None."""
        closed = [
            partition for partition in partitions if not partition.log.producer_state.has_open_transaction(*producer)
        ]
        if not closed:
            return None
        ends = [partition.guards.ends for partition in closed]
        coordinator = services.transactions
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
    """Like `Partition.append`, if the partition is in the open transaction; under transactions V2 it is added to it
    (T7). `verification`: of the whole request. The records are walked, if the log wants that; they are again if its
    settings have changed when the coordinator answers. Raises KafkaError, too."""
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
        return append(None, refused)  # no marker can have come in between
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
