"""The I/O part of a producer's transactions, around `transaction_manager`.

A single task ends a transaction, even if several callers wait for the result. A caller that stops waiting (timeout,
cancellation) can call again: the second call waits for the same task, as with Kafka's client.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

from oncelog.cluster import TopicPartition
from oncelog.config import ProducerConfig
from oncelog.errors import (
    AbortableError,
    ClientClosed,
    EndNotKnown,
    ErrorCode,
    FatalError,
    InvalidTransactionState,
    KafkaError,
    ProducerFenced,
    RequestTimedOut,
    fatal,
)
from oncelog.group_offsets import ConsumerGroupMetadata, OffsetAndMetadata
from oncelog.prepared_transaction import FIRST_INIT_WITH_TWO_PHASE_COMMIT, PreparedTransaction
from oncelog.producer import transaction_requests as requests
from oncelog.producer.coordinator_calls import CoordinatorCalls, CoordinatorKey
from oncelog.producer.transaction_errors import is_forgotten
from oncelog.producer.transaction_manager import OPEN, TransactionManager
from oncelog.producer.transaction_states import TransactionState
from oncelog_protocol.features import TRANSACTIONS_V2
from oncelog_protocol.messages.find_coordinator import CoordinatorType
from oncelog_protocol.messages.init_producer_id import InitProducerIdRequest
from oncelog_protocol.producer_id import NO_IDENTITY, ProducerIdAndEpoch
from oncelog_protocol.records.batch import NO_PRODUCER_ID

if TYPE_CHECKING:
    from oncelog.tracing.client_spans import ClientSpans
    from oncelog.tracing.transaction_span import TransactionSpan

logger = logging.getLogger(__name__)


TWO_PHASE_COMMIT_HINTS: Final = {
    ErrorCode.UNSUPPORTED_VERSION: "set transaction.two.phase.commit.enable=true on all brokers, or do without"
    " two_phase_commit and end the transaction with admin.transactions.end before its timeout",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "it needs the operations Write and TwoPhaseCommit on the"
    " transactional id, and transaction.two.phase.commit.enable=true on all brokers",
}
"""Error code -> advice to the user, for errors with which a broker refuses two-phase commit."""


class _Ending(NamedTuple):
    """A commit or abort that is in progress, or done but not yet reported to a caller."""

    commits: bool
    task: asyncio.Task[None]


class Transactions:
    """The transactions of one producer.

    `wake` wakes the sender; `flush` waits until every batch has a result; `drop_waiting` fails the unsent records.
    """

    def __init__(
        self,
        manager: TransactionManager,
        calls: CoordinatorCalls,
        config: ProducerConfig,
        *,
        wake: Callable[[], None],
        flush: Callable[[], Awaitable[None]],
        drop_waiting: Callable[[KafkaError], None],
        spans: ClientSpans | None = None,
    ) -> None:
        self.manager = manager
        self._calls = calls
        self._config = config
        self._wake = wake
        self._flush = flush
        self._drop_waiting = drop_waiting
        self._coordinator = CoordinatorKey(manager.transactional_id, CoordinatorType.TRANSACTION)
        self._is_v2 = False
        self._adding: asyncio.Task[None] | None = None
        self._ending: _Ending | None = None
        self._offsets_under_way = 0
        self._offsets_done = asyncio.Event()
        self._groups_added: set[str] = set()
        self._is_handed_over = False
        self._spans = spans
        self.span: TransactionSpan | None = None
        """The span of this transaction, or of the last transaction; None without tracing."""
        self.prepared: PreparedTransaction | None = None
        """The transaction that this producer has prepared, or has found open when it started; None if that transaction
        is over.
        """

    # methods that the application calls

    async def initialise(self) -> None:
        """Take over the transactional id: older producers with the same id are fenced. An open transaction of an older
        producer is aborted (S34), or kept with two_phase_commit (S121).

        Raises KafkaError, for example RequestTimedOut after max.block.ms.
        """
        self.manager.begin_initialising()
        try:
            async with asyncio.timeout(self._config.max_block_ms / 1000):
                await self._initialise(NO_IDENTITY)
        except TimeoutError:
            raise self._timed_out("the transactional id could not be initialised") from None
        except KafkaError as error:
            if self._config.two_phase_commit and error.code in TWO_PHASE_COMMIT_HINTS:
                hint = TWO_PHASE_COMMIT_HINTS[error.code]
                error = type(error)(error.code, f"two_phase_commit=True: {error.message}: {hint}")
            raise self.manager.failed(fatal(error)) from None

    def begin(self) -> None:
        """Begin a transaction. Raises InvalidTransactionState, FatalError."""
        self._forget_ended()
        self.manager.begin(is_v2=self._is_v2)
        self._groups_added.clear()
        self._is_handed_over = False
        if self._spans is not None:
            self.span = self._spans.transaction(self._id, *self._identity)

    def sending_to(self, partition: TopicPartition) -> None:
        """Record that a record for this partition is about to be appended. Raises InvalidTransactionState,
        KafkaError."""
        manager = self.manager
        manager.sending_to(partition)
        if manager.pending and self._adding is None:
            self._adding = _task(self._add_pending())

    @contextmanager
    def record_waits(self) -> Iterator[None]:
        """Context manager for the time in which `send` waits for metadata or memory. If the wait fails or is cancelled,
        the transaction must be aborted, because the record is missing from the transaction. If the transaction ends
        during the wait, the record is not added to the next transaction.

        Raises InvalidTransactionState, KafkaError.
        """
        manager = self.manager
        manager.check_in_transaction()
        number = manager.number
        try:
            yield
            if manager.number != number:
                raise InvalidTransactionState("the transaction ended while its record waited")
            manager.check_in_transaction()
        except asyncio.CancelledError:
            self._record_failed(number, RequestTimedOut(ErrorCode.REQUEST_TIMED_OUT, "a send was cancelled"))
            raise
        except KafkaError as error:
            self._record_failed(number, error)
            raise

    def _record_failed(self, number: int, error: KafkaError) -> None:
        """Record that transaction `number` lacks a record and must therefore be aborted."""
        if self.manager.number == number and self.manager.is_sending:
            self.failed(error)

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> None:
        """Commit the group's offsets with the transaction (S37, S46). Raises KafkaError."""
        manager = self.manager
        manager.check_in_transaction()
        if not offsets:
            return
        self._offsets_under_way += 1
        self._offsets_done.clear()
        try:
            async with asyncio.timeout(self._config.max_block_ms / 1000):
                await self._send_offsets(offsets, group)
        except TimeoutError:
            raise self.failed(self._timed_out("the offsets could not be handed over")) from None
        except asyncio.CancelledError:
            self.failed(RequestTimedOut(ErrorCode.REQUEST_TIMED_OUT, "handing over the offsets was cancelled"))
            raise
        except KafkaError as error:
            raise self.failed(error) from None
        finally:
            self._offsets_under_way -= 1
            if not self._offsets_under_way:
                self._offsets_done.set()

    async def prepare(self) -> PreparedTransaction | None:
        """Send all records, and leave the transaction open; any process that has the result can end it.

        Returns None if no record was written. Raises AbortableError if only `abort` is possible; FatalError;
        InvalidTransactionState. After RequestTimedOut (max.block.ms), another call continues to wait.
        """
        manager = self.manager
        self._forget_ended()
        manager.begin_prepare()
        try:
            async with asyncio.timeout(self._config.max_block_ms / 1000):
                await self._flush()
                await self._quiet()
        except TimeoutError:
            raise self._timed_out(
                "not all records of the transaction could be written yet: call prepare_transaction again"
            ) from None
        if manager.error is not None:
            raise manager.error.with_traceback(None)
        if not manager.must_be_ended:
            manager.begin_commit()
            manager.ended(None)
            if self.span is not None:
                self.span.end("commit")
            return None
        self._is_handed_over = True
        if self.span is not None:
            self.span.end("prepared")  # when `prepare` has returned, another process may end the transaction
        self.prepared = PreparedTransaction(self._id, self._identity.producer_id, self._identity.epoch, manager.is_v2)
        return self.prepared

    async def complete(self, stored: PreparedTransaction | None) -> bool | None:
        """Commit the prepared transaction if it equals `stored`, otherwise abort it (S121).

        Returns whether the transaction was committed; None if no transaction is open. Raises ValueError for a
        transaction of another transactional id; InvalidTransactionState in a transaction that is not prepared;
        FatalError. After EndNotKnown (max.block.ms), another call continues to wait.
        """
        if stored is not None and stored.transactional_id != self._id:
            raise ValueError(
                f"the transaction to complete is of transactional id {stored.transactional_id!r}, this producer has"
                f" {self._id!r}"
            )
        if self._ending is not None:
            commits = self._ending.commits
        else:
            self.manager.check_usable()
            if self.manager.state is TransactionState.READY:
                return None
            if self.manager.state is not TransactionState.PREPARED_TRANSACTION or self.prepared is None:
                raise InvalidTransactionState(
                    "only a prepared transaction can be completed: prepare, commit or abort the open transaction"
                )
            commits = stored is not None and stored.producer == self.prepared.producer
        await (self.commit() if commits else self.abort())
        return commits

    async def commit(self) -> None:
        """Commit the transaction. Raises AbortableError if only `abort` is possible; FatalError;
        InvalidTransactionState. After EndNotKnown (max.block.ms) the commit continues, and another call waits for it.
        """
        if self._ending is None or not self._ending.commits:
            self._forget_ended()
            self.manager.begin_commit()
            self._ending = _Ending(True, _task(self._commit()))
            if self.span is not None:
                self._ending.task.add_done_callback(self.span.committed)
        await self._until_ended(self._ending, "commit")

    async def abort(self) -> None:
        """Abort the transaction. Raises FatalError and InvalidTransactionState, and EndNotKnown as `commit` does."""
        if self._ending is None or self._ending.commits:
            self._forget_ended()
            self.manager.begin_abort()
            self._ending = _Ending(False, _task(self._abort()))
            if self.span is not None:
                self._ending.task.add_done_callback(self.span.aborted)
        await self._until_ended(self._ending, "abort")

    async def until_over(self) -> None:
        """Wait for a commit or abort whose caller was cancelled; if the commit has failed meanwhile, abort the
        transaction.

        Raises EndNotKnown after max.block.ms, FatalError.
        """
        ending = self._ending
        if ending is None:
            return
        name = "commit" if ending.commits else "abort"
        try:
            await self._until_ended(ending, name)
        except AbortableError:
            await self.abort()

    @property
    def is_open(self) -> bool:
        """Whether an open transaction can be aborted."""
        return self.manager.state in OPEN

    async def close(self) -> None:
        """Wait for a running commit or abort, for at most max.block.ms, and then abort an open transaction.

        A prepared transaction stays open, because another process ends it.
        """
        try:
            if self._ending is not None:
                await asyncio.wait([self._ending.task], timeout=self._config.max_block_ms / 1000)
            if self.is_open and not self._is_handed_over:
                await self.abort()
        except KafkaError as error:
            logger.warning(
                "transactional id %s: an open transaction was not aborted and stays open until its timeout: %s",
                self._id,
                error,
            )
        finally:
            tasks = [task for task in (self._adding, self._ending and self._ending.task) if task is not None]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if self.span is not None:
                self.span.lost("the producer was closed before the transaction was ended")

    # methods that the sender calls

    def failed(self, error: KafkaError) -> KafkaError:
        """Record that a batch or a request failed permanently; no more records of this transaction are sent. Returns
        the error for the application.
        """
        if isinstance(error, ClientClosed):
            return error
        told = self.manager.failed(error)
        if self.span is not None:
            self.span.will_fail(told)
        self._drop_waiting(told)
        return told

    # inside

    @property
    def _id(self) -> str:
        return self.manager.transactional_id

    @property
    def _identity(self) -> ProducerIdAndEpoch:
        return self.manager.session.identity

    async def _initialise(self, identity: ProducerIdAndEpoch) -> None:
        """Send InitProducerId; the state is then READY. `identity` is the present producer id and epoch if the producer
        continues, or NO_IDENTITY to initialise the transactional id.
        """
        if identity is not NO_IDENTITY:
            connection = await self._calls.connection(self._coordinator)
            assert connection.versions is not None
            if connection.versions.choose(InitProducerIdRequest) < requests.FIRST_WITH_IDENTITY:
                raise FatalError(
                    ErrorCode.UNSUPPORTED_VERSION,
                    "the broker is older than Kafka 2.5: after this error only a new producer can continue",
                )
        two_phase = self._config.two_phase_commit
        if two_phase:
            await self._check_tells_transactions_apart()
        request = requests.init_producer_id(
            self._id,
            self._config.transaction_timeout_ms,
            identity,
            two_phase=two_phase,
            keeps_open=two_phase and identity is NO_IDENTITY,
        )
        at_least = FIRST_INIT_WITH_TWO_PHASE_COMMIT if two_phase else 0
        response = await self._calls.ask(self._coordinator, request, is_v2=self._is_v2, at_least=at_least)
        given = ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
        if identity is not NO_IDENTITY and is_forgotten(identity, given):
            raise FatalError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"the coordinator no longer knew {identity}")
        self._between_transactions()
        if response.ongoing_txn_producer_id == NO_PRODUCER_ID:
            self.manager.initialised(given)
            return
        self.manager.kept(given, is_v2=self._is_v2)
        self._is_handed_over = True
        self.prepared = PreparedTransaction(
            self._id, response.ongoing_txn_producer_id, response.ongoing_txn_producer_epoch, self._is_v2
        )

    async def _check_tells_transactions_apart(self) -> None:
        """Check that transactions V2 are enabled. Under V1, all transactions of a producer have the same epoch. Under
        V1, the stored identity of one transaction could therefore commit the next transaction, which was not prepared.
        Raises FatalError
        before any producer is fenced.
        """
        connection = await self._calls.connection(self._coordinator)
        versions = connection.versions
        assert versions is not None
        is_offered = versions.choose(InitProducerIdRequest) >= FIRST_INIT_WITH_TWO_PHASE_COMMIT
        if is_offered and versions.transaction_version < TRANSACTIONS_V2:
            raise FatalError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"the cluster has transaction.version={versions.transaction_version}, with which the "
                f"transactions of a producer cannot be distinguished: raise it to {TRANSACTIONS_V2}",
            )

    def _between_transactions(self) -> None:
        """Check whether the cluster has switched to V2; this is done only between transactions, because a transaction
        must end in the version in which it began (T7).
        """
        self._calls.has_unanswered = False
        version = self._calls.transaction_version(self._coordinator)
        if version is not None:
            self._is_v2 = version >= TRANSACTIONS_V2

    async def _add_pending(self) -> None:
        manager = self.manager
        try:
            while manager.pending:
                partitions = set(manager.pending)
                request = requests.add_partitions(self._id, self._identity, partitions)
                await self._calls.ask(self._coordinator, request, is_v2=False)
                manager.were_added(partitions)
                self._wake()
        except KafkaError as error:
            self.failed(error)
        finally:
            self._adding = None

    async def _send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> None:
        manager = self.manager
        is_v2 = manager.is_v2
        if is_v2:
            manager.sent()
        elif group.group_id not in self._groups_added:
            added = requests.add_offsets(self._id, self._identity, group.group_id)
            await self._calls.ask(self._coordinator, added, is_v2=is_v2)
            manager.sent()
            self._groups_added.add(group.group_id)
        coordinator = CoordinatorKey(group.group_id, CoordinatorType.GROUP)
        request = requests.txn_offset_commit(self._id, self._identity, offsets, group)
        try:
            await self._calls.ask(coordinator, request, is_v2=is_v2)
        except ProducerFenced as error:
            if error.code is not ErrorCode.INVALID_PRODUCER_EPOCH:
                raise
            # As with a Produce request, the error may only mean that the transaction timed out; the abort shows whether
            # it does (KIP-588).
            raise AbortableError(error.code, error.message) from None

    def _forget_ended(self) -> None:
        """Forget the last transaction. Raises InvalidTransactionState while it is being ended."""
        if self._ending is not None and not self._ending.task.done():
            name = "commit" if self._ending.commits else "abort"
            raise InvalidTransactionState(f"the {name} is still in progress: call {name} again to wait for it")
        self._ending = None

    async def _until_ended(self, ending: _Ending, name: str) -> None:
        """Wait until the commit or abort has ended. The result is stored until a caller has received it, so that a
        cancelled caller may call again.
        """
        try:
            async with asyncio.timeout(self._config.max_block_ms / 1000):
                await asyncio.wait([ending.task])
        except TimeoutError:
            raise EndNotKnown(
                f"the {name} continues after max.block.ms={self._config.max_block_ms}: call {name} again to wait for it"
            ) from None
        if self._ending is ending:
            self._ending = None
        if ending.task.cancelled():
            raise ClientClosed(f"the producer was closed before the {name} was finished")
        ending.task.result()

    async def _commit(self) -> None:
        manager = self.manager
        await self._flush()
        await self._quiet()
        if manager.error is not None:
            raise manager.error
        try:
            identity = await self._send_end(commits=True)
        except KafkaError as error:
            raise self.failed(error) from None
        try:
            await self._conclude(identity)
        except KafkaError as error:
            # raise nothing, because this transaction is committed, although the next transaction cannot begin
            manager.failed(fatal(error))

    async def _abort(self) -> None:
        manager = self.manager
        try:
            self._drop_waiting(manager.error or _aborted())
            await self._flush()
            await self._quiet()
            await self._conclude(await self._send_end(commits=False))
        except KafkaError as error:
            raise manager.failed(fatal(error)) from None

    async def _quiet(self) -> None:
        """Wait until no request of this transaction is outstanding, because EndTxn must be the last request that the
        coordinator gets (E2).
        """
        if self._adding is not None:
            await asyncio.gather(asyncio.shield(self._adding), return_exceptions=True)
        if self._offsets_under_way:
            await self._offsets_done.wait()

    async def _send_end(self, *, commits: bool) -> ProducerIdAndEpoch | None:
        """Send EndTxn, if there is a transaction to end. Returns the next identity; None means unchanged (before
        V2)."""
        manager = self.manager
        if not manager.may_send_end:
            manager.session.needs_new_epoch = True
            return None
        if not manager.must_be_ended:
            return None
        request = requests.end_txn(self._id, self._identity, commits=commits)
        try:
            response = await self._calls.ask(self._coordinator, request, is_v2=manager.is_v2)
        except KafkaError as error:
            if commits and manager.is_v2 and error.code is ErrorCode.INVALID_TXN_STATE:
                # The transaction timed out and was already aborted by the coordinator. The following abort then
                # succeeds and brings the next epoch.
                raise AbortableError(
                    error.code, "the coordinator has aborted the transaction after its timeout"
                ) from None
            raise
        if response.producer_id < 0:
            return None
        return ProducerIdAndEpoch(response.producer_id, response.producer_epoch)

    async def _conclude(self, identity: ProducerIdAndEpoch | None) -> None:
        """Clean up after a transaction, so that the next transaction can begin."""
        manager = self.manager
        self.prepared = None
        # A late copy of a request without a response may reach the coordinator during the next transaction. The late
        # copy could begin or end that transaction (E1, KAFKA-17754), or commit old offsets with it. Therefore get a new
        # epoch first, by which brokers refuse the late copy. Under V2, the end of a transaction that was begun has
        # already brought a new epoch.
        if identity is None and (manager.session.needs_new_epoch or self._calls.has_unanswered):
            manager.begin_initialising()
            await self._initialise(self._identity)
        else:
            self._between_transactions()
            manager.ended(identity)

    def _timed_out(self, what: str) -> RequestTimedOut:
        return RequestTimedOut(
            ErrorCode.REQUEST_TIMED_OUT, f"{what} (max.block.ms={self._config.max_block_ms} has passed)"
        )


def _task(work: Coroutine[None, None, None]) -> asyncio.Task[None]:
    """Run `work` as a task whose error is passed to the waiters, if there are any."""
    task = asyncio.get_running_loop().create_task(work)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return task


def _aborted() -> KafkaError:
    return KafkaError(ErrorCode.TRANSACTION_ABORTABLE, "the transaction was aborted before the record was sent")
