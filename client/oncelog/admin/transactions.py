"""Administration of transactions (KIP-664): `admin.transactions`.

Coordinators know transactional ids, and partition leaders know producers; hanging transactions are found by combining
the two (`oncelog.admin.hanging`). All requests are part of Kafka's protocol. As in `admin`, a call for a single
item raises the error of that item, and a call for several items raises PartialFailure.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Any, Final, TypeVar

from oncelog.admin.calls import Calls
from oncelog.admin.configs import describe_configs
from oncelog.admin.coordinators import MOVED, Coordinators
from oncelog.admin.hanging import (
    PREPARED,
    DescribedTransaction,
    Explanation,
    HangingTransaction,
    ListedTransaction,
    OpenTransaction,
    PartitionEnds,
    ProducerState,
    TransactionLimits,
    explanation,
)
from oncelog.admin.items import settled, the_one
from oncelog.admin.prepared import UNUSED_TIMEOUT_MS, PreparedTransactions
from oncelog.admin.resources import ConfigResource
from oncelog.clock import now_ms
from oncelog.cluster import NO_LEADER_EPOCH, NO_NODE, TopicPartition
from oncelog.errors import ErrorCode, KafkaError, PartialFailure, UnsupportedVersion, error_for
from oncelog.metadata.internal_topics import TRANSACTION_STATE, partition_for
from oncelog.metadata.list_offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from oncelog.prepared_transaction import PreparedTransaction
from oncelog_protocol.messages.fetch import IsolationLevel
from oncelog_protocol.messages.find_coordinator import CoordinatorType
from oncelog_protocol.producer_id import ProducerIdAndEpoch

PARTITIONS_PER_REQUEST: Final = 500
"""Maximum number of partitions in one DescribeProducers request, as in Kafka's tool; the response may list many
producers for each partition.
"""
LOOKS: Final = 3
"""Maximum number of times that partitions are queried again because their transactions changed during the query."""
ONE_BATCH: Final = 1
"""Maximum bytes of a fetch; a small value is enough, because a broker returns at least one batch and only the batch
header is needed.
"""
MAX_TIMEOUT_KEY: Final = "transaction.max.timeout.ms"
ABORT_INTERVAL_KEY: Final = "transaction.abort.timed.out.transaction.cleanup.interval.ms"

R = TypeVar("R")

Matches = Callable[[ProducerState], bool]
Listed = list[ListedTransaction]
Producers = list[ProducerState]
OpenByPartition = dict[TopicPartition, list[OpenTransaction]]
Hanging = list[HangingTransaction]


class TransactionAdmin:
    """Programs use this class as `admin.transactions`."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._coordinators = Coordinators(calls, CoordinatorType.TRANSACTION)
        self._prepared = PreparedTransactions(calls, self._coordinators, self._describe_one)

    # --- queries

    async def list(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        duration_ms: int | None = None,
        pattern: str | None = None,
    ) -> Listed:
        """Return the transactional ids of all brokers that match every filter, sorted.

        `duration_ms` selects only ids whose transaction has been open for longer than this many milliseconds. `pattern`
        is a regular expression
        that the full id must match. Raises KafkaError INVALID_REQUEST for an unknown state, UnsupportedVersion if a
        broker is too old for a filter (`duration_ms` needs Kafka 3.8, `pattern` Kafka 4.1).
        """
        from oncelog_protocol.messages.list_transactions import ListTransactionsRequest

        request = ListTransactionsRequest(
            state_filters=list(states),
            producer_id_filters=list(producer_ids),
            duration_filter=-1 if duration_ms is None else duration_ms,
            transactional_id_pattern=pattern,
        )
        needed = 2 if pattern else 0 if duration_ms is None else 1

        async def ask(node_id: int) -> Any:
            if await self._calls.version_at(node_id, ListTransactionsRequest) < needed:
                raise UnsupportedVersion(
                    ErrorCode.UNSUPPORTED_VERSION, f"broker {node_id} is too old to filter by duration or pattern"
                )
            response = await self._calls.send_to(node_id, request)
            if response.error_code:
                raise error_for(response.error_code)
            if response.unknown_state_filters:
                unknown = ", ".join(response.unknown_state_filters)
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"unknown transaction state: {unknown}")
            return response

        found = [
            ListedTransaction(listed.transactional_id, listed.producer_id, listed.transaction_state, node_id)
            for node_id, response in (await self._coordinators.of_all_brokers(ask)).items()
            for listed in response.transaction_states
        ]
        return sorted(found, key=_transactional_id)

    async def describe(self, transactional_ids: Iterable[str]) -> dict[str, DescribedTransaction]:
        """Return state, producer, timeout and partitions of each transactional id. Raises KafkaError
        (TRANSACTIONAL_ID_NOT_FOUND), PartialFailure.
        """
        from oncelog_protocol.messages.describe_transactions import DescribeTransactionsRequest

        async def ask(transactional_id: str, node_id: int) -> DescribedTransaction:
            request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
            response = await self._calls.send_to(node_id, request)
            state = the_one(response.transaction_states, transactional_id)
            _check(state.error_code, transactional_id)
            return DescribedTransaction(
                transactional_id,
                state.transaction_state,
                state.producer_id,
                state.producer_epoch,
                state.transaction_timeout_ms,
                state.transaction_start_time_ms if state.transaction_start_time_ms >= 0 else None,
                frozenset(
                    TopicPartition(topic.topic, partition) for topic in state.topics for partition in topic.partitions
                ),
                node_id,
                state.client_id,
                state.client_host,
            )

        return await self._coordinators.each(transactional_ids, ask)

    async def producers(
        self, partitions: Iterable[TopicPartition], *, broker_id: int | None = None
    ) -> dict[TopicPartition, Producers]:
        """Return the producers that each partition remembers, sorted by id: as the partition's leader, or the replica
        on `broker_id`, knows them.

        Raises KafkaError, PartialFailure.
        """
        from oncelog_protocol.messages.describe_producers import DescribeProducersRequest

        topic_type = DescribeProducersRequest.TopicRequest

        async def ask(
            node_id: int, part: Mapping[TopicPartition, None]
        ) -> dict[TopicPartition, Producers | KafkaError]:
            topics = {name: topic_type(name=name, partition_indexes=[]) for name, _ in part}
            for name, index in part:
                topics[name].partition_indexes.append(index)
            response = await self._calls.send_to(node_id, DescribeProducersRequest(topics=list(topics.values())))
            return {
                TopicPartition(topic.name, answer.partition_index): _producers_of(topic.name, answer)
                for topic in response.topics
                for answer in topic.partitions
            }

        found: dict[TopicPartition, Producers] = {}
        wanted = list(dict.fromkeys(partitions))
        for start in range(0, len(wanted), PARTITIONS_PER_REQUEST):
            part = dict.fromkeys(wanted[start : start + PARTITIONS_PER_REQUEST])
            if broker_id is None:
                found |= await self._calls.ask_leaders(part, ask)
                continue
            answers = await ask(broker_id, part)
            errors = {key: answer for key, answer in answers.items() if isinstance(answer, KafkaError)}
            found |= settled({k: answer for k, answer in answers.items() if not isinstance(answer, KafkaError)}, errors)
        return found

    # --- analysis

    async def find_hanging(
        self,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        broker_id: int | None = None,
        min_age_ms: int = 0,
    ) -> Hanging:
        """Return the hanging transactions, sorted by partition and offset.

        The search includes all partitions, or `partitions`; with `broker_id`, only the partitions that this broker
        leads. `min_age_ms` selects only transactions whose last record is at least that old. The search reads each open
        transaction twice and queries its coordinator in between, so transactions that have just begun or ended are not
        included. Raises KafkaError, PartialFailure.
        """
        wanted = await self._searched(partitions, broker_id)
        suspects = {found.transaction.identity: found for found in await self._hanging(wanted, min_age_ms)}
        if not suspects:
            return []
        again = await self._hanging({identity[0] for identity in suspects}, min_age_ms)
        return [found for found in again if found.transaction.identity in suspects]

    async def may_be_aborted(self, partition: TopicPartition, start_offset: int) -> bool:
        """Return whether `abort` is safe. `abort` is not safe if the transaction's other partitions may be committed.
        `abort` is safe if the transaction that begins at `start_offset` hangs, or if no transaction is open there.
        Raises KafkaError.
        """
        (states,) = (await self.producers([partition])).values()
        if all(state.transaction_start_offset != start_offset for state in states):
            return True  # no transaction is open, and `abort` raises the error
        return any(
            found.transaction.start_offset == start_offset and found.transaction.may_be_aborted_here
            for found in await self.find_hanging([partition])
        )

    async def explain(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Explanation]:
        """Explain which transaction, if any, holds back read_committed readers of each partition. Raises KafkaError,
        PartialFailure."""
        explained: dict[TopicPartition, Explanation] = {}
        unsettled: Collection[TopicPartition] = list(dict.fromkeys(partitions))
        for _ in range(LOOKS):
            explained |= await self._explain(unsettled)
            unsettled = [key for key in unsettled if explained[key].is_held_back and explained[key].pinned_by is None]
            if not unsettled:
                break
        return explained

    # --- changes

    async def abort(self, partition: TopicPartition, start_offset: int) -> ProducerState:
        """Write the missing marker of a hanging transaction, in this partition only. Returns the aborted producer's
        state.

        Never abort a transaction that does not hang: its other partitions may still be committed. Raises KafkaError
        INVALID_TXN_STATE if no open transaction starts at `start_offset`.
        """
        aborted: list[ProducerState] = []

        async def ask(node_id: int) -> ProducerState:
            # The producers are queried before each attempt, because after a lost response a second marker could end a
            # later transaction.
            for state in (await self.producers([partition], broker_id=node_id))[partition]:
                if state.transaction_start_offset == start_offset:
                    aborted.append(state)
                    producer = ProducerIdAndEpoch(state.producer_id, state.producer_epoch)
                    await self._write_abort_marker(node_id, partition, producer, state.coordinator_epoch)
                    return state
            if not aborted:
                raise KafkaError(
                    ErrorCode.INVALID_TXN_STATE, f"{partition}: no open transaction begins at offset {start_offset}"
                )
            return aborted[-1]

        return await self._at_leader(partition, ask)

    async def abort_producer(
        self, partition: TopicPartition, producer: ProducerIdAndEpoch, coordinator_epoch: int
    ) -> None:
        """Write the missing abort marker in this partition without checking that the transaction hangs, for brokers
        that cannot describe their producers (Kafka before 3.0).

        `coordinator_epoch` is the epoch of the last marker of this producer, below 0 if there was none. Raises
        KafkaError INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED.
        """
        await self._at_leader(
            partition, lambda node_id: self._write_abort_marker(node_id, partition, producer, coordinator_epoch)
        )

    async def fence(self, transactional_ids: Iterable[str]) -> dict[str, ProducerIdAndEpoch]:
        """Fence the producers of transactional ids, and abort their open transactions. Returns the new producer ids and
        epochs.

        Raises KafkaError (TRANSACTIONAL_ID_NOT_FOUND), PartialFailure.
        """
        from oncelog_protocol.messages.init_producer_id import InitProducerIdRequest

        described = await self.describe(transactional_ids)

        async def ask(transactional_id: str, node_id: int) -> ProducerIdAndEpoch:
            # No producer writes with the new epoch, so any timeout that the broker allows is suitable.
            known = described[transactional_id]
            timeout_ms = known.timeout_ms if known.has_timeout else UNUSED_TIMEOUT_MS
            request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
            response = await self._calls.send_to(node_id, request)
            _check(response.error_code, transactional_id)
            return ProducerIdAndEpoch(response.producer_id, response.producer_epoch)

        return await self._coordinators.each(described, ask, MOVED | {ErrorCode.CONCURRENT_TRANSACTIONS})

    async def end(self, prepared: PreparedTransaction, *, commits: bool) -> bool:
        """Commit or abort a prepared transaction (`Producer.prepare_transaction`).

        Retries until a response arrives. Returns True if the transaction has ended as requested, by this call or an
        earlier call. Returns False if the transaction has ended with the opposite outcome. The outcome is the opposite
        if the transaction was to be committed, but its coordinator aborted it because of a timeout or a new
        initialisation of the transactional id. The outcome is also the opposite if the transaction was to be aborted,
        but had already been committed. Under transaction protocol V1, and after a new initialisation, the result
        concerns the last transaction of this producer id and epoch. Prepare only one transaction with each producer id
        and epoch.

        Raises ProducerFenced if the transaction is open and another process has kept it (`keep`); only that process can
        end the transaction. Raises KafkaError if the outcome is unknown. INVALID_PRODUCER_ID_MAPPING means that the id
        has expired. UnsupportedVersion means that the transaction began under V2 and this broker does not support V2.
        After RequestTimedOut and ConnectionFailed, call `end` again.
        """
        return await self._prepared.end(prepared, commits=commits)

    async def keep(self, prepared: PreparedTransaction) -> PreparedTransaction | None:
        """Become the owner of a prepared transaction that its producer has handed over. The transaction stays open, has
        no timeout from
        now on, and its producer is fenced (KIP-939, S121).

        Returns the transaction to pass to `end` from now on. Returns None if this transaction is no longer open; if a
        later transaction of the same transactional id is open, it is aborted, because the take-over fences its producer
        too. Raises UnsupportedVersion if the broker has no two-phase commit (transaction.two.phase.commit.enable), and
        AuthorizationFailed without the operations Write and TwoPhaseCommit on the transactional id. After any other
        KafkaError, call `keep` again.
        """
        return await self._prepared.keep(prepared)

    async def commit(self, transactional_id: str) -> None:
        """Commit the open transaction of a transactional id on behalf of its producer, which is fenced (KIP-939).

        All its records on the brokers become visible, even if its producer had more records to write. Raises KafkaError
        INVALID_TXN_STATE if no transaction is open, and UnsupportedVersion and AuthorizationFailed in the same cases as
        `keep`; unlike `keep`, this call needs only the operation Write.
        """
        await self._prepared.commit(transactional_id)

    async def _describe_one(self, transactional_id: str) -> DescribedTransaction:
        return (await self.describe([transactional_id]))[transactional_id]

    # The remaining methods are internal: they query partitions and coordinators.

    async def _searched(
        self, partitions: Iterable[TopicPartition] | None, broker_id: int | None
    ) -> Collection[TopicPartition]:
        """Return the partitions to search: all partitions with a leader, or the requested partitions."""
        wanted = None if partitions is None else frozenset(partitions)
        if wanted is not None and broker_id is None:
            return wanted
        if wanted is None:
            topics = dict((await self._calls.described(None)).topics)
        else:
            topics = await self._calls.describe_topics({key.topic for key in wanted})
        leaders = {
            TopicPartition(name, index): known.leader
            for name, topic in topics.items()
            for index, known in topic.partitions.items()
        }
        return [
            partition
            for partition, leader in leaders.items()
            if leader != NO_NODE and broker_id in (None, leader) and (wanted is None or partition in wanted)
        ]

    async def _hanging(self, partitions: Collection[TopicPartition], min_age_ms: int) -> Hanging:
        """Return the transactions that appear to hang in one query; some of them may only be about to end."""
        newest_ms = now_ms() - min_age_ms
        open_in = await self._open(partitions, lambda known: min_age_ms <= 0 or known.last_timestamp <= newest_ms)
        limits = await self._limits(open_in)
        now = now_ms()
        return [
            HangingTransaction(transaction, hang, transaction.is_late(now, limits))
            for partition in sorted(open_in)
            for transaction in sorted(open_in[partition], key=_start_offset)
            if (hang := transaction.hang(now, limits)) is not None
        ]

    async def _explain(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Explanation]:
        open_in = await self._open(partitions, lambda _: True)
        limits = await self._limits(open_in)
        starts = await self._calls.list_offsets(dict.fromkeys(partitions, EARLIEST_TIMESTAMP))
        latest = dict.fromkeys(partitions, LATEST_TIMESTAMP)
        stable = await self._calls.list_offsets(latest, isolation_level=IsolationLevel.READ_COMMITTED)
        ends = await self._calls.list_offsets(latest)
        explained = {}
        for partition in partitions:
            known = PartitionEnds(starts[partition].offset, stable[partition].offset, ends[partition].offset)
            here = open_in.get(partition, ())
            first_ms = await self._timestamp(partition, known) if here else None
            explained[partition] = explanation(partition, known, here, now_ms(), limits, first_ms)
        return explained

    async def _open(self, partitions: Collection[TopicPartition], matches: Matches) -> OpenByPartition:
        """Read the open transactions by partition, and then the state of their coordinators."""
        open_in = {
            partition: opened
            for partition, states in (await self.producers(partitions)).items()
            if (opened := [s for s in states if s.transaction_start_offset is not None and matches(s)])
        }
        held = await self._held({state.producer_id for states in open_in.values() for state in states})
        epochs = await self._coordinator_epochs(known for known in held.values() if known.state in PREPARED)
        return {
            partition: [
                OpenTransaction(
                    partition,
                    state,
                    state.transaction_start_offset or 0,
                    held.get(state.producer_id),
                    epochs.get(state.producer_id, NO_LEADER_EPOCH),
                )
                for state in states
            ]
            for partition, states in open_in.items()
        }

    async def _coordinator_epochs(self, decided: Iterable[DescribedTransaction]) -> dict[int, int]:
        """Return producer id -> epoch of the coordinator of its transaction, for brokers that report the epoch."""
        ids = {transaction.producer_id: transaction.transactional_id for transaction in decided}
        if not ids:
            return {}
        topic = (await self._calls.described([TRANSACTION_STATE])).topics.get(TRANSACTION_STATE)
        if topic is None or not topic.partitions:
            return {}
        leaders = {
            producer_id: topic.partitions.get(partition_for(transactional_id, len(topic.partitions)))
            for producer_id, transactional_id in ids.items()
        }
        return {producer_id: known.leader_epoch for producer_id, known in leaders.items() if known is not None}

    async def _held(self, producer_ids: Collection[int]) -> dict[int, DescribedTransaction]:
        """Return the coordinators' state of these producer ids."""
        if not producer_ids:
            return {}
        transactional_ids = {found.transactional_id for found in await self.list(producer_ids=producer_ids)}
        try:
            described = await self.describe(transactional_ids)
        except PartialFailure as failure:
            _raise_but(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, failure.errors.values())
            described = dict(failure.results)
        except KafkaError as error:
            _raise_but(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, [error])
            described = {}
        return {transaction.producer_id: transaction for transaction in described.values()}

    async def _limits(self, open_in: OpenByPartition) -> TransactionLimits:
        """Return the known settings of the coordinators; if brokers differ in a setting, return the largest value."""
        nodes = {
            transaction.held.coordinator_id
            for transactions in open_in.values()
            for transaction in transactions
            if transaction.held is not None
        }
        known = TransactionLimits()
        if not nodes:
            return known
        try:
            configs = await describe_configs(
                self._calls, [ConfigResource.broker(node) for node in nodes], keys=[MAX_TIMEOUT_KEY, ABORT_INTERVAL_KEY]
            )
        except KafkaError:
            return known  # Kafka's defaults, without the right to read the settings
        values = [{key: entry.value for key, entry in entries.items()} for entries in configs.values()]

        def largest(key: str, default: int) -> int:
            return max((int(each[key] or default) for each in values if key in each), default=default)

        return TransactionLimits(
            largest(MAX_TIMEOUT_KEY, known.max_timeout_ms), largest(ABORT_INTERVAL_KEY, known.abort_interval_ms)
        )

    async def _timestamp(self, partition: TopicPartition, ends: PartitionEnds) -> int | None:
        """Return the timestamp (ms) of the first record at or after the last stable offset; None if no record is
        found.
        """
        from oncelog_protocol.messages.fetch import FetchRequest
        from oncelog_protocol.records.batch import CorruptBatch, RecordBatch

        asked = FetchRequest.FetchTopic
        wanted = asked.FetchPartition(
            partition=partition.partition, fetch_offset=ends.last_stable_offset, partition_max_bytes=ONE_BATCH
        )
        topic = asked(topic=partition.topic, partitions=[wanted])
        request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=ONE_BATCH, topics=[topic])

        async def ask(node_id: int) -> int | None:
            response = await self._calls.send_to(node_id, request)
            _check(response.error_code, str(partition))
            answer = the_one(the_one(response.responses, partition).partitions, partition)
            _check(answer.error_code, str(partition))
            if not answer.records:
                return None
            batch = RecordBatch(answer.records)
            return batch.max_timestamp if batch.is_log_append_time else batch.base_timestamp

        try:
            return await self._at_leader(partition, ask)
        except (KafkaError, CorruptBatch):
            return None

    async def _at_leader(self, partition: TopicPartition, ask: Callable[[int], Awaitable[R]]) -> R:
        """Find the leader of a partition, and return the result of `ask(node id of the leader)`. Raises KafkaError."""

        async def ask_node(node_id: int, _: Mapping[TopicPartition, None]) -> dict[TopicPartition, R | KafkaError]:
            return {partition: await ask(node_id)}

        return (await self._calls.ask_leaders({partition: None}, ask_node))[partition]

    async def _write_abort_marker(
        self, node_id: int, partition: TopicPartition, producer: ProducerIdAndEpoch, coordinator_epoch: int
    ) -> None:
        """Send an abort marker for this partition to its leader. Raises KafkaError."""
        from oncelog_protocol.messages.write_txn_markers import WriteTxnMarkersRequest

        marker = WriteTxnMarkersRequest.WritableTxnMarker
        topic = marker.WritableTxnMarkerTopic(name=partition.topic, partition_indexes=[partition.partition])
        wanted = marker(
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            transaction_result=False,
            topics=[topic],
            coordinator_epoch=max(0, coordinator_epoch),  # 0 is the lowest coordinator epoch
        )
        response = await self._calls.send_to(node_id, WriteTxnMarkersRequest(markers=[wanted]))
        written = the_one(the_one(response.markers, partition).topics, partition)
        _check(the_one(written.partitions, partition).error_code, str(partition))


def _producers_of(topic: str, answer: Any) -> Producers | KafkaError:
    """Return the producers of one partition in a DescribeProducers response."""
    if answer.error_code:
        meaning = answer.error_message or ErrorCode.of(answer.error_code).meaning
        return error_for(answer.error_code, f"{topic}-{answer.partition_index}: {meaning}")
    states = [
        ProducerState(
            known.producer_id,
            known.producer_epoch,
            known.last_sequence,
            known.last_timestamp,
            known.coordinator_epoch,
            known.current_txn_start_offset if known.current_txn_start_offset >= 0 else None,
        )
        for known in answer.active_producers
    ]
    return sorted(states, key=_producer_id)


def _check(error_code: int, subject: str) -> None:
    if error_code:
        raise error_for(error_code, f"{subject}: {ErrorCode.of(error_code).meaning}")


def _raise_but(code: ErrorCode, errors: Iterable[KafkaError]) -> None:
    """Raise the first of the errors whose code is not `code`."""
    for error in errors:
        if error.code is not code:
            raise error


def _transactional_id(listed: ListedTransaction) -> str:
    return listed.transactional_id


def _producer_id(state: ProducerState) -> int:
    return state.producer_id


def _start_offset(transaction: OpenTransaction) -> int:
    return transaction.start_offset
