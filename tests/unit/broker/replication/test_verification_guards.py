"""Guards cover the time between the verification that a producer is in a transaction and the append (KIP-890)."""

from __future__ import annotations

import asyncio

import pytest

from oncelog_broker.replication.verification_guards import Guard, VerificationGuards
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.features import TRANSACTIONS_V1, TRANSACTIONS_V2

PRODUCER, EPOCH = 7, 3


def taken(guards: VerificationGuards, epoch: int = EPOCH) -> tuple[Guard, asyncio.Future[None]]:
    """Take a guard whose verification has no result yet; return the guard and the future of the result."""
    found: list[Guard] = []
    answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def ask(guard: Guard) -> asyncio.Future[None]:
        found.append(guard)
        return answer

    guards.during(PRODUCER, epoch, ask)
    return found[0], answer


def refusal(guards: VerificationGuards, guard: Guard) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        guards.check(guard)
    return refused.value.code


async def test_a_guard_is_dropped_with_its_last_question() -> None:
    guards = VerificationGuards()
    guard, first = taken(guards)
    again, second = taken(guards)
    assert (again is guard, len(guards)) == (True, 1)
    guards.check(guard)
    first.set_result(None)
    await asyncio.sleep(0)
    assert guards.holds(guard)
    second.cancel()
    await asyncio.sleep(0)
    assert (guards.holds(guard), len(guards)) == (False, 0)


async def test_a_question_that_raises_leaves_no_guard() -> None:
    def ask(guard: Guard) -> None:
        raise KafkaError(ErrorCode.NOT_COORDINATOR)

    guards = VerificationGuards()
    with pytest.raises(KafkaError):
        guards.during(PRODUCER, EPOCH, ask)
    assert len(guards) == 0


@pytest.mark.parametrize(
    ("marker_epoch", "version", "holds"),
    [
        (EPOCH, TRANSACTIONS_V1, False),
        (EPOCH, TRANSACTIONS_V2, True),  # the marker has already ended the producer's transaction
        (EPOCH + 1, TRANSACTIONS_V2, False),
    ],
)
async def test_e3_a_marker_between_question_and_append_refuses_the_append(
    marker_epoch: int, version: int, holds: bool
) -> None:
    guards = VerificationGuards()
    guard, _ = taken(guards)
    guards.on_marker(PRODUCER, marker_epoch, version)
    assert guards.holds(guard) is holds
    if not holds:
        assert refusal(guards, guard) is ErrorCode.INVALID_TXN_STATE


async def test_foreign_markers_and_older_epochs_do_not_affect_a_guard() -> None:
    guards = VerificationGuards()
    guard, _ = taken(guards)
    successor, _ = taken(guards, EPOCH + 1)
    guards.on_marker(PRODUCER + 1, EPOCH, TRANSACTIONS_V1)
    assert guards.holds(guard)
    guards.on_marker(PRODUCER, EPOCH + 1, TRANSACTIONS_V2)
    assert (guards.holds(guard), guards.holds(successor)) == (False, True)


async def test_a_leader_change_between_question_and_append_refuses_the_append() -> None:
    guards = VerificationGuards()
    guard, answer = taken(guards)
    guards.on_new_leader_epoch()
    assert refusal(guards, guard) is ErrorCode.NOT_LEADER_OR_FOLLOWER, "it helps to come again"
    newer, _ = taken(guards)
    answer.set_result(None)
    await asyncio.sleep(0)
    assert guards.holds(newer), "the older question takes only its own guard away"
