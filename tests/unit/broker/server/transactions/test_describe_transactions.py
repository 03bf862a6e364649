"""DescribeTransactions returns the state of a transactional id, without topics that the client may not see."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.support.handlers import CLIENT, MachineRuntime, answered, asked
from tests.support.transactions import P0, TIMEOUT_MS, TXN, TransactionDriver

from oncelog_broker.coordinator.transaction.metadata import TopicPartition
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.transactions import describe_transactions
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.describe_transactions import DescribeTransactionsRequest


def with_an_open_transaction() -> TransactionDriver:
    driver = TransactionDriver()
    producer = driver.init()
    driver.add(producer, P0, TopicPartition("returns", 2))
    return driver


async def describe(driver: TransactionDriver, *names: str, refused: Any = ()) -> list[Any]:
    runtime = MachineRuntime(driver.machine)
    clients = SimpleNamespace(of=lambda transactional_id: CLIENT if transactional_id == TXN else None)
    context = asked(
        ApiKey.DESCRIBE_TRANSACTIONS,
        0,
        refused=refused,
        transactions=SimpleNamespace(runtime=runtime, last_clients=clients),
    )
    request = DescribeTransactionsRequest(transactional_ids=list(names))
    return (await answered(describe_transactions.handle, request, context)).transaction_states


def topics(state: Any) -> dict[str, list[int]]:
    return {topic.topic: topic.partitions for topic in state.topics}


async def test_an_open_transaction_is_described() -> None:
    driver = with_an_open_transaction()
    (state,) = await describe(driver, TXN)
    assert (state.error_code, state.transaction_state, state.transaction_timeout_ms) == (0, "Ongoing", TIMEOUT_MS)
    assert state.transaction_start_time_ms == driver.now_ms()
    assert topics(state) == {"orders": [0], "returns": [2]}
    assert (state.client_id, state.client_host) == (CLIENT.client_id, CLIENT.host)


async def test_a_transaction_that_has_not_begun_has_no_start() -> None:
    driver = TransactionDriver()
    driver.init()
    (state,) = await describe(driver, TXN)
    assert (state.transaction_state, state.transaction_start_time_ms, state.topics) == ("Empty", -1, [])


async def test_each_transactional_id_is_described_once_with_its_own_error() -> None:
    states = await describe(
        with_an_open_transaction(), TXN, "unknown", "", "secret", TXN, refused={(rules.DESCRIBE_TRANSACTION, "secret")}
    )
    assert [(state.transactional_id, state.error_code) for state in states] == [
        (TXN, ErrorCode.NONE),
        ("unknown", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND),
        ("", ErrorCode.INVALID_REQUEST),
        ("secret", ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    ]


async def test_unauthorized_topics_are_left_out() -> None:
    (state,) = await describe(with_an_open_transaction(), TXN, refused={(rules.TOPIC_OF_TRANSACTION, "returns")})
    assert topics(state) == {"orders": [0]}
