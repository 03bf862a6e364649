"""Ends transactions that their producers have handed over, and takes ownership of them first if the brokers support
that (KIP-939).

A transaction is owned by a producer id and epoch, and only a request with this producer id and epoch can end the
transaction. If no client has taken the transaction over, the owner has the producer id and epoch of the transaction's
records; a PreparedTransaction stores them. `keep` makes this admin client the owner: the transaction stays open, no
longer has a timeout, and the previous owner is fenced. The next producer with the transactional id either takes
ownership in the same way or aborts the transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final

from oncelog.admin.calls import Calls
from oncelog.admin.coordinators import Coordinators
from oncelog.admin.hanging import ONGOING, DescribedTransaction
from oncelog.errors import ErrorCode, KafkaError, ProducerFenced, UnsupportedVersion, error_for
from oncelog.prepared_transaction import (
    FIRST_INIT_WITH_TWO_PHASE_COMMIT,
    LAST_END_TXN_BEFORE_V2,
    Ended,
    PreparedTransaction,
    outcome,
)
from oncelog_protocol.records.batch import NO_PRODUCER_ID

RETRIABLE: Final = frozenset(code for code in ErrorCode if code.retriable)
"""Retriable errors of a coordinator, including CONCURRENT_TRANSACTIONS."""
UNUSED_TIMEOUT_MS: Final = 10_000
"""Transaction timeout (ms) in an admin client's InitProducerId request. The admin client writes no records, so any
timeout works that is below the brokers' transaction.max.timeout.ms.
"""
FENCED: Final = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})

Describe = Callable[[str], Coroutine[Any, Any, DescribedTransaction]]


class PreparedTransactions:
    """`describe` returns the coordinator's state of a transactional id."""

    def __init__(self, calls: Calls, coordinators: Coordinators, describe: Describe) -> None:
        self._calls = calls
        self._coordinators = coordinators
        self._describe = describe

    async def end(self, prepared: PreparedTransaction, *, commits: bool) -> bool:
        """See `TransactionAdmin.end`."""
        from oncelog_protocol.messages.end_txn import EndTxnRequest

        request = EndTxnRequest(
            transactional_id=prepared.transactional_id,
            producer_id=prepared.producer_id,
            producer_epoch=prepared.epoch,
            committed=commits,
        )

        async def ask(_: str, node_id: int) -> bool:
            if prepared.is_v2 and await self._calls.version_at(node_id, EndTxnRequest) <= LAST_END_TXN_BEFORE_V2:
                raise UnsupportedVersion(
                    ErrorCode.UNSUPPORTED_VERSION,
                    f"{prepared.transactional_id}: was begun under transactions V2, which broker {node_id} has not",
                )
            at_most = None if prepared.is_v2 else LAST_END_TXN_BEFORE_V2
            response = await self._calls.send_to(node_id, request, at_most=at_most)
            code = ErrorCode.of(response.error_code)
            if code in FENCED and await self._can_keep(node_id):
                await self._check_not_kept(prepared)
            ended = outcome(code, commits=commits)
            if ended is Ended.NOT_KNOWN:
                raise _error(code, prepared.transactional_id)
            return ended is Ended.AS_ASKED

        answers = await self._coordinators.each([prepared.transactional_id], ask, RETRIABLE)
        return answers[prepared.transactional_id]

    async def _can_keep(self, node_id: int) -> bool:
        """Return whether a broker can pass an open transaction to a new owner without aborting it."""
        from oncelog_protocol.messages.init_producer_id import InitProducerIdRequest

        return await self._calls.version_at(node_id, InitProducerIdRequest) >= FIRST_INIT_WITH_TWO_PHASE_COMMIT

    async def _check_not_kept(self, prepared: PreparedTransaction) -> None:
        """Raise ProducerFenced if another process has taken the transaction over and it is still open, because that
        process will end it.

        This function recognises a takeover by the producer id and epoch: a client that took the transaction over has a
        higher pair than the transaction's records. The records of a later transaction have a still higher pair.
        """
        try:
            known = await self._describe(prepared.transactional_id)
        except KafkaError as error:
            if error.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                return  # the transactional id has expired, so no transaction is open
            raise
        is_this = known.producer_id == prepared.producer_id and known.producer_epoch <= prepared.epoch
        if known.state == ONGOING and is_this:
            raise ProducerFenced(
                ErrorCode.PRODUCER_FENCED,
                f"the transaction of {prepared.transactional_id!r} is open, and another process has taken it over: only"
                " that one, or the next producer with this transactional id, can end it",
            )

    async def keep(self, prepared: PreparedTransaction) -> PreparedTransaction | None:
        """See `TransactionAdmin.keep`."""
        owned, records = await self._take_over(prepared.transactional_id, two_phase=True)
        if records == prepared.producer:
            return owned
        # The open transaction is a later one, whose producer `_take_over` has fenced, so abort it.
        if records is not None:
            await self.end(owned, commits=False)
        return None

    async def commit(self, transactional_id: str) -> None:
        """See `TransactionAdmin.commit`."""
        known = await self._describe(transactional_id)
        if known.state == ONGOING:  # if no transaction is open, do not fence the producer
            owned, records = await self._take_over(transactional_id, two_phase=False)
            if records is not None:
                if not await self.end(owned, commits=True):
                    raise ProducerFenced(
                        ErrorCode.PRODUCER_FENCED, f"the transaction of {transactional_id!r} was aborted meanwhile"
                    )
                return
        raise KafkaError(ErrorCode.INVALID_TXN_STATE, f"{transactional_id!r} has no open transaction: {known.state}")

    async def _take_over(
        self, transactional_id: str, *, two_phase: bool
    ) -> tuple[PreparedTransaction, tuple[int, int] | None]:
        """Become the owner of the transaction. Returns two pairs of producer id and epoch: the pair with which the open
        transaction can be ended, and the pair in the transaction's records (None if no transaction is open). Raises
        KafkaError, UnsupportedVersion.
        """
        from oncelog_protocol.messages.init_producer_id import InitProducerIdRequest

        request = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=UNUSED_TIMEOUT_MS,
            enable2_pc=two_phase,
            keep_prepared_txn=True,
        )

        async def ask(_: str, node_id: int) -> Any:
            if not await self._can_keep(node_id):
                raise UnsupportedVersion(
                    ErrorCode.UNSUPPORTED_VERSION,
                    f"{transactional_id}: broker {node_id} cannot keep an open transaction for another owner (it does"
                    f" not have InitProducerId version {FIRST_INIT_WITH_TWO_PHASE_COMMIT}): set"
                    " transaction.two.phase.commit.enable=true on all brokers",
                )
            response = await self._calls.send_to(node_id, request)
            if response.error_code:
                raise _error(response.error_code, transactional_id)
            return response

        response = (await self._coordinators.each([transactional_id], ask, RETRIABLE))[transactional_id]
        owned = PreparedTransaction(transactional_id, response.producer_id, response.producer_epoch, is_v2=True)
        if response.ongoing_txn_producer_id == NO_PRODUCER_ID:
            return owned, None
        return owned, (response.ongoing_txn_producer_id, response.ongoing_txn_producer_epoch)


def _error(code: int, subject: str) -> KafkaError:
    return error_for(code, f"{subject}: {ErrorCode.of(code).meaning}")
