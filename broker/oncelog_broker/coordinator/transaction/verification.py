"""Checks, before a transactional append, that the coordinator has registered the partition in the transaction
(KIP-890).

A record that arrives after the end of its transaction (a late Produce, E2) would open a transaction that no coordinator
ends, and the last stable offset would never advance again. To prevent this, the broker asks the coordinator, before the
first batch of a transaction in a partition, whether the partition is in the transaction. For producers of transactions
V2 the coordinator adds the partition (T7); while it completes the producer's previous transaction, this broker asks
again for a short time, because some clients wait for seconds before they send a refused batch again (E59).

The coordinator may be another broker, and its answer may be late, so a marker may be written before the append. Before
the coordinator is asked, the append therefore gets a guard object (`replication/verification_guards.py`), which every
later marker invalidates. If the guard is invalid at the append, the append fails (E3).

If this broker's cluster image is outdated, this broker may ask a former coordinator. That coordinator may report a
transaction as open although the new coordinator has ended it. In this case the new coordinator's marker in the log has
a later coordinator epoch than the cluster image, and the append is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from oncelog_broker.coordinator.transaction.metadata import TopicPartition
from oncelog_broker.replication.partition import Partition
from oncelog_broker.replication.purgatory import no_longer_than
from oncelog_broker.runtime.answers import Answer, then
from oncelog_broker.runtime.tasks import Deadlines
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.features import TRANSACTIONS_V2
from oncelog_protocol.producer_id import ProducerIdAndEpoch

if TYPE_CHECKING:
    from oncelog_broker.coordinator.transaction.coordinator import TransactionCoordinator

ANSWER_SECONDS: Final = 10.0
"""Maximum seconds to wait for the coordinator's response; after that the producer must send the batch again."""


def check_in_transaction(
    coordinator: TransactionCoordinator,
    transactional_id: str,
    producer: ProducerIdAndEpoch,
    partitions: Iterable[Partition],
    deadlines: Deadlines,
    *,
    registers: bool,
) -> Answer[KafkaError | None]:
    """Returns None if `producer` may append to all of `partitions` in its open transaction; with `registers` the
    partitions are added to the transaction.

    Otherwise returns an error: TRANSACTION_ABORTABLE (not in the transaction), INVALID_PRODUCER_EPOCH,
    INVALID_PRODUCER_ID_MAPPING, INVALID_TXN_STATE (the transaction was taken over, S120); CONCURRENT_TRANSACTIONS or
    NOT_ENOUGH_REPLICAS if the producer should send the batch again.
    """
    not_open = [partition for partition in partitions if not partition.log.has_open_transaction(*producer)]
    if not not_open or not (registers or coordinator.verifies):
        return None
    epoch = coordinator.epoch_of(transactional_id)
    if any(partition.log.producer_state.coordinator_epoch(producer.producer_id) > epoch for partition in not_open):
        return _later_coordinator(producer)
    unknown = [TopicPartition(partition.topic, partition.index) for partition in not_open]
    if registers:
        registration = _Registration(coordinator, transactional_id, producer, unknown, deadlines)
        answer = registration.ask(coordinator.registration_pause_seconds)
    else:
        answer = _verify(coordinator, transactional_id, producer, unknown)
    answer = no_longer_than(ANSWER_SECONDS, answer, deadlines)
    return then(answer, partial(_error_of, producer, unknown, registers))


def check_each_in_transaction(
    coordinator: TransactionCoordinator,
    transactional_id: str,
    producer: ProducerIdAndEpoch,
    partitions: Iterable[Partition],
    deadlines: Deadlines,
) -> Answer[Mapping[Partition, KafkaError | None]]:
    """Check for each partition whether it is in the open transaction of `producer`; returns partition -> error or None.
    The caller must know that `producer` has no open transaction in any of `partitions` yet. If another broker is the
    coordinator, nothing is checked and the result is empty, because `remote_coordinators` combines questions to other
    brokers into one request anyway.
    """
    if not coordinator.verifies:
        return dict.fromkeys(partitions)
    if coordinator.elsewhere(transactional_id) is not None:
        return {}
    epoch = coordinator.epoch_of(transactional_id)
    verdicts: dict[Partition, KafkaError | None] = {}
    asked: dict[TopicPartition, Partition] = {}
    for partition in partitions:
        if partition.log.producer_state.coordinator_epoch(producer.producer_id) > epoch:
            verdicts[partition] = _later_coordinator(producer)
        else:
            asked[TopicPartition(partition.topic, partition.index)] = partition
    codes = coordinator.verify(transactional_id, producer, asked)
    if isinstance(codes, asyncio.Future):
        deadlines.unless_done(codes, ANSWER_SECONDS, partial(_give_up, codes, asked))

    def told(codes: Mapping[TopicPartition, ErrorCode]) -> Mapping[Partition, KafkaError | None]:
        for where, code in codes.items():
            verdicts[asked[where]] = None if code is ErrorCode.NONE else _error_of(producer, [where], False, code)
        return verdicts

    return then(codes, told)


def _give_up(answer: asyncio.Future[dict[TopicPartition, ErrorCode]], asked: Iterable[TopicPartition]) -> None:
    if not answer.done():
        answer.set_result(dict.fromkeys(asked, ErrorCode.REQUEST_TIMED_OUT))


def _later_coordinator(producer: ProducerIdAndEpoch) -> KafkaError:
    return KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, f"{producer} has a later coordinator than this broker knows")


def _error_of(
    producer: ProducerIdAndEpoch, unknown: list[TopicPartition], registers: bool, code: ErrorCode
) -> KafkaError | None:
    return None if code is ErrorCode.NONE else refused_by_coordinator(producer, unknown, code, registers=registers)


def refused_by_coordinator(
    producer: ProducerIdAndEpoch, unknown: list[TopicPartition], code: ErrorCode, *, registers: bool
) -> KafkaError:
    """Return the error for the producer's batches in the partitions `unknown`, after the coordinator has refused to
    verify them, or with `registers` to add them, with the error `code`."""
    if code is ErrorCode.PRODUCER_FENCED:
        return KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, f"{producer} is fenced")
    if code.retriable and not (registers and code is ErrorCode.CONCURRENT_TRANSACTIONS):
        return KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, f"the transaction of {producer} is not verified: {code.name}")
    return KafkaError(code, f"{producer}: " + ", ".join("-".join(map(str, where)) for where in unknown))


class _Registration:
    """Asks the coordinator to add partitions to a transaction. While the coordinator completes the producer's previous
    transaction, it is asked again, after pauses that double, for at most `coordinator.registration_seconds`.

    The methods are passed on as bound methods, not as functions that refer to one another: such a reference cycle would
    be garbage of every Produce request of a transaction.
    """

    __slots__ = ("_coordinator", "_deadlines", "_last", "_loop", "_producer", "_transactional_id", "_unknown")

    def __init__(
        self,
        coordinator: TransactionCoordinator,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        unknown: list[TopicPartition],
        deadlines: Deadlines,
    ) -> None:
        self._coordinator = coordinator
        self._transactional_id = transactional_id
        self._producer = producer
        self._unknown = unknown
        self._deadlines = deadlines
        self._loop = asyncio.get_running_loop()
        self._last = self._loop.time() + coordinator.registration_seconds
        """The time of the event loop after which the coordinator is not asked again."""

    def ask(self, pause: float) -> Answer[ErrorCode]:
        """Ask the coordinator; if it is busy, ask it again after `pause` seconds."""
        coordinator, producer, unknown = self._coordinator, self._producer, self._unknown
        broker_id = coordinator.elsewhere(self._transactional_id)
        if broker_id is None:
            answer = coordinator.add_partitions(self._transactional_id, producer, unknown, TRANSACTIONS_V2)
        else:
            answer = coordinator.remote.ask(broker_id, self._transactional_id, producer, unknown, registers=True)
        return then(answer, partial(self._again_if_busy, pause))

    def _again_if_busy(self, pause: float, code: ErrorCode) -> Answer[ErrorCode]:
        if code is not ErrorCode.CONCURRENT_TRANSACTIONS or self._loop.time() + pause > self._last:
            return code
        longer: asyncio.Future[float] = self._loop.create_future()
        self._deadlines.after(pause, lambda: None if longer.done() else longer.set_result(2 * pause))
        return then(longer, self.ask)


def _verify(
    coordinator: TransactionCoordinator,
    transactional_id: str,
    producer: ProducerIdAndEpoch,
    unknown: list[TopicPartition],
) -> Answer[ErrorCode]:
    broker_id = coordinator.elsewhere(transactional_id)
    if broker_id is not None:
        return coordinator.remote.ask(broker_id, transactional_id, producer, unknown, registers=False)
    return then(coordinator.verify(transactional_id, producer, unknown), _first_error)


def _first_error(codes: dict[TopicPartition, ErrorCode]) -> ErrorCode:
    return next((code for code in codes.values() if code is not ErrorCode.NONE), ErrorCode.NONE)
