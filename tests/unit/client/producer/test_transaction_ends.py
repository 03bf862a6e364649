"""Commits and aborts that take long, are cancelled, or are caused by `close`; and `async with producer.transaction()`
(S44, S60).
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from tests.support.fake_transactions import FakeCoordinator, impatient
from tests.support.loop_turns import turns
from tests.support.transactional_producers import (
    GROUP,
    OFFSETS,
    P0,
    commit_one,
    ends,
    started,
    until_abortable,
)

from oncelog.errors import (
    AbortableError,
    ClientClosed,
    EndNotKnown,
    InvalidTransactionState,
)
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.end_txn import EndTxnRequest
from oncelog_protocol.messages.find_coordinator import CoordinatorType, FindCoordinatorRequest
from oncelog_protocol.messages.produce import ProduceRequest
from oncelog_protocol.messages.txn_offset_commit import TxnOffsetCommitRequest

# --- ends that take long, are cancelled, or are caused by `close`


@pytest.mark.parametrize("end", ["commit", "abort"])
async def test_s44_an_end_that_takes_too_long_continues(coordinator: FakeCoordinator, end: str) -> None:
    hold = asyncio.Event()
    coordinator.script[EndTxnRequest] = [hold]
    async with started(coordinator) as producer:
        call = producer.commit_transaction if end == "commit" else producer.abort_transaction
        other = producer.abort_transaction if end == "commit" else producer.commit_transaction
        producer.begin_transaction()
        await producer.send_and_wait("topic", b"v")
        with (
            pytest.raises(EndNotKnown, match=rf"the {end} continues after max\.block\.ms=1: call {end} again"),
            impatient(producer),
        ):
            await call()
        with pytest.raises(InvalidTransactionState, match=f"the {end} is still in progress"):
            producer.begin_transaction()
        with pytest.raises(InvalidTransactionState, match=f"the {end} is still in progress"):
            await other()
        with pytest.raises(InvalidTransactionState):
            await producer.send("topic", b"v")
        again = asyncio.ensure_future(call())
        await turns()
        assert not again.done()
        hold.set()
        await again
        with pytest.raises(InvalidTransactionState):
            await call()  # one call has already ended the transaction
        await commit_one(producer, b"next")
    assert ends(coordinator) == [end == "commit", True]
    assert coordinator.committed == {P0: [b"v", b"next"] if end == "commit" else [b"next"]}


async def test_s44_a_commit_that_ended_unseen_can_be_asked_for_or_left(coordinator: FakeCoordinator) -> None:
    async with started(coordinator) as producer:
        for number, is_asked in enumerate((True, False), 1):
            hold = asyncio.Event()
            coordinator.script[EndTxnRequest] = [hold]
            producer.begin_transaction()
            await producer.send_and_wait("topic", b"v")
            with pytest.raises(EndNotKnown), impatient(producer):
                await producer.commit_transaction()
            await coordinator.broker.received(EndTxnRequest, number)
            hold.set()
            while coordinator.transaction().state != "CompleteCommit":
                await turns(1)
            await turns(100)
            if is_asked:
                await producer.commit_transaction()
        await commit_one(producer, b"next")
    assert coordinator.committed == {P0: [b"v", b"v", b"next"]}


async def test_s44_a_commit_that_failed_unseen_can_only_be_aborted(coordinator: FakeCoordinator) -> None:
    hold = asyncio.Event()

    async def refuse(request: Any) -> Any:
        version = coordinator.broker.version
        await hold.wait()
        return coordinator.answer(request, version, refusal=ErrorCode.TRANSACTION_ABORTABLE)

    coordinator.broker.handlers[EndTxnRequest] = refuse
    async with started(coordinator) as producer:
        producer.begin_transaction()
        await producer.send_and_wait("topic", b"v")
        with pytest.raises(EndNotKnown), impatient(producer):
            await producer.commit_transaction()
        await coordinator.broker.received(EndTxnRequest)  # the commit still runs, and its request has reached `refuse`
        hold.set()
        coordinator.broker.handlers[EndTxnRequest] = coordinator._handle
        await until_abortable(producer)
        await producer.abort_transaction()
        await commit_one(producer, b"next")
    assert ends(coordinator) == [True, False, True]
    assert coordinator.committed == {P0: [b"next"]}


async def test_s44_a_commit_that_is_cancelled_continues(coordinator: FakeCoordinator) -> None:
    hold = asyncio.Event()
    coordinator.script[EndTxnRequest] = [hold]
    async with started(coordinator) as producer:
        committing = asyncio.ensure_future(commit_one(producer, b"v"))
        await coordinator.broker.received(EndTxnRequest)
        committing.cancel()
        await asyncio.wait([committing])
        assert committing.cancelled()
        hold.set()
        await producer.commit_transaction()
        await commit_one(producer, b"next")
    assert ends(coordinator) == [True, True]
    assert coordinator.committed == {P0: [b"v", b"next"]}


@pytest.mark.parametrize("end", ["commit", "abort"])
async def test_s44_a_cancelled_caller_does_not_learn_the_end(coordinator: FakeCoordinator, end: str) -> None:
    async with started(coordinator) as producer:
        producer.begin_transaction()
        await producer.send_and_wait("topic", b"v")
        call = producer.commit_transaction if end == "commit" else producer.abort_transaction
        ending = asyncio.ensure_future(call())
        await turns(1)
        (task,) = [task for task in asyncio.all_tasks() if f"Transactions._{end}" in repr(task.get_coro())]
        task.add_done_callback(lambda _: ending.cancel())
        await asyncio.wait([ending])
        assert ending.cancelled()
        await call()  # the transaction has ended, and one of the callers gets the result
        with pytest.raises(InvalidTransactionState):
            await call()
    assert ends(coordinator) == [end == "commit"]


@pytest.mark.parametrize("outcome", [ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE])
async def test_s60_a_block_waits_for_the_commit_of_a_block_that_was_cancelled(
    coordinator: FakeCoordinator, outcome: ErrorCode
) -> None:
    async with started(coordinator) as producer:
        hold = asyncio.Event()

        async def held(request: Any) -> Any:
            await hold.wait()
            coordinator.broker.handlers[EndTxnRequest] = coordinator._handle
            coordinator.script[EndTxnRequest] = [outcome] if outcome else []
            return await coordinator._handle(request)

        coordinator.broker.handlers[EndTxnRequest] = held
        first = asyncio.ensure_future(commit_one(producer, b"first"))
        await coordinator.broker.received(EndTxnRequest)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        second = asyncio.ensure_future(commit_one(producer, b"second"))
        await turns()
        hold.set()
        await second
    assert coordinator.committed == {P0: [b"second"] if outcome else [b"first", b"second"]}


@pytest.mark.parametrize("end", ["commit", "abort"])
async def test_e2_the_end_waits_for_offsets_that_are_handed_over(coordinator: FakeCoordinator, end: str) -> None:
    # EndTxn goes to another coordinator over a separate connection, and must not overtake the offsets.
    broker = coordinator.broker
    group_broker = type(broker)()
    await group_broker.start()
    hold = asyncio.Event()

    def find(request: Any) -> Any:
        found = coordinator.answer(request, broker.version)
        if request.key_type == CoordinatorType.GROUP:
            (only,) = found.coordinators
            only.node_id, only.port = 2, group_broker.port
        return found

    async def offsets(request: Any) -> Any:
        await hold.wait()
        return coordinator.answer(request, group_broker.version)

    broker.others[2] = group_broker.port
    broker.handlers[FindCoordinatorRequest] = find
    group_broker.handlers[TxnOffsetCommitRequest] = offsets
    try:
        async with started(coordinator) as producer:
            producer.begin_transaction()
            handing = asyncio.ensure_future(producer.send_offsets(OFFSETS, GROUP))
            await group_broker.received(TxnOffsetCommitRequest)
            ending = asyncio.ensure_future(
                producer.commit_transaction() if end == "commit" else producer.abort_transaction()
            )
            await turns()
            assert ends(coordinator) == []
            hold.set()
            await asyncio.gather(handing, ending)
    finally:
        await group_broker.stop()
    assert coordinator.offsets == ({("g", "in", 0): 42} if end == "commit" else {})


async def test_two_tasks_may_wait_for_the_same_commit(coordinator: FakeCoordinator) -> None:
    async with started(coordinator) as producer:
        producer.begin_transaction()
        await producer.send("topic", b"v")
        await asyncio.gather(producer.commit_transaction(), producer.commit_transaction())
    assert ends(coordinator) == [True]


async def test_close_aborts_an_open_transaction(coordinator: FakeCoordinator) -> None:
    async with started(coordinator) as producer:
        producer.begin_transaction()
        await producer.send_and_wait("topic", b"v")
        future = await producer.send("topic", b"w")
    assert future.done()
    assert ends(coordinator) == [False]
    assert coordinator.committed == {}
    for call in (producer.commit_transaction, producer.abort_transaction):
        with pytest.raises(ClientClosed):
            await call()


async def test_close_waits_for_a_commit(coordinator: FakeCoordinator) -> None:
    hold = asyncio.Event()
    coordinator.script[EndTxnRequest] = [hold]
    async with started(coordinator) as producer:
        committing = asyncio.ensure_future(commit_one(producer, b"v"))
        await coordinator.broker.received(EndTxnRequest)
        closing = asyncio.ensure_future(producer.close())
        await turns()
        assert not closing.done()
        hold.set()
        await closing
        await committing
    assert coordinator.committed == {P0: [b"v"]}


async def test_close_aborts_the_transaction_of_a_failed_commit(coordinator: FakeCoordinator) -> None:
    hold = asyncio.Event()
    coordinator.broker.topics["topic"] = 2
    steps = iter([ErrorCode.INVALID_RECORD, None])

    async def handle(request: Any) -> Any:
        code = next(steps)
        if code is None:
            await hold.wait()
        return coordinator.answer(request, coordinator.broker.version, refusal=code)

    coordinator.broker.handlers[ProduceRequest] = handle
    async with started(coordinator, batch_size=1) as producer:
        producer.begin_transaction()
        refused = await producer.send("topic", b"refused", partition=0)
        await coordinator.broker.received(ProduceRequest)
        held = await producer.send("topic", b"held", partition=1)
        committing = asyncio.ensure_future(producer.commit_transaction())
        await asyncio.wait([refused])
        closing = asyncio.ensure_future(producer.close())
        await turns()
        hold.set()
        await closing
        with pytest.raises(AbortableError):
            await committing
        assert held.done()
    assert ends(coordinator) == [False]


async def test_close_in_a_hurry_leaves_a_commit_to_its_timeout(coordinator: FakeCoordinator) -> None:
    coordinator.script[EndTxnRequest] = [asyncio.Event()]
    async with started(coordinator) as producer:
        committing = asyncio.ensure_future(commit_one(producer, b"v"))
        await coordinator.broker.received(EndTxnRequest)
        await producer.close(timeout_s=0.01)
        with pytest.raises(ClientClosed):
            await committing


async def test_close_in_a_hurry_leaves_an_open_transaction_to_its_timeout(coordinator: FakeCoordinator) -> None:
    coordinator.script[EndTxnRequest] = [asyncio.Event()]
    async with started(coordinator) as producer:
        producer.begin_transaction()
        await producer.send_and_wait("topic", b"v")
        await producer.close(timeout_s=0.01)
    assert coordinator.transaction().state == "Ongoing"


# the block


async def test_s60_an_exception_in_the_block_aborts_is_raised_and_the_next_transaction_commits(
    coordinator: FakeCoordinator,
) -> None:
    async with started(coordinator) as producer:
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction():
                await producer.send_and_wait("topic", b"v")
                raise ZeroDivisionError
        await commit_one(producer, b"next")
    assert ends(coordinator) == [False, True]
    assert coordinator.committed == {P0: [b"next"]}


async def test_s60_a_body_that_is_cancelled_aborts(coordinator: FakeCoordinator) -> None:
    reached = asyncio.Event()

    async def body() -> None:
        async with producer.transaction():
            await producer.send_and_wait("topic", b"v")
            reached.set()
            await asyncio.Event().wait()

    async with started(coordinator) as producer:
        working = asyncio.ensure_future(body())
        await reached.wait()
        working.cancel()
        await asyncio.wait([working])
        assert working.cancelled()
        assert ends(coordinator) == [False]
        await commit_one(producer, b"next")
    assert coordinator.committed == {P0: [b"next"]}


async def test_s60_a_body_may_end_its_transaction_itself_if_it_fails(coordinator: FakeCoordinator) -> None:
    async with started(coordinator) as producer:
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction():
                await producer.send_and_wait("topic", b"v")
                await producer.abort_transaction()
                raise ZeroDivisionError
    assert ends(coordinator) == [False]


@pytest.mark.parametrize("fails", ["body", "commit"])
async def test_s60_an_abort_that_takes_long_does_not_hide_the_error(coordinator: FakeCoordinator, fails: str) -> None:
    hold = asyncio.Event()
    coordinator.script[EndTxnRequest] = [hold] if fails == "body" else [ErrorCode.TRANSACTION_ABORTABLE, hold]
    async with started(coordinator) as producer, contextlib.AsyncExitStack() as stack:

        def end(request: Any) -> Any:
            if request.committed:
                stack.enter_context(impatient(producer))
            return coordinator._handle(request)

        async def body() -> None:
            async with producer.transaction():
                await producer.send_and_wait("topic", b"v")
                if fails == "body":
                    stack.enter_context(impatient(producer))
                    raise ZeroDivisionError

        coordinator.broker.handlers[EndTxnRequest] = end
        working = asyncio.ensure_future(body())
        await coordinator.broker.received(EndTxnRequest, 1 if fails == "body" else 2)
        _, pending = await asyncio.wait([working], timeout=0.02)
        await stack.aclose()
        hold.set()
        with pytest.raises(ZeroDivisionError if fails == "body" else AbortableError):
            await working
        assert pending, "the next transaction could not begin yet"
        coordinator.broker.handlers[EndTxnRequest] = coordinator._handle
        await commit_one(producer, b"next")
    assert coordinator.committed == {P0: [b"next"]}
