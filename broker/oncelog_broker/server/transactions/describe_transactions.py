"""DescribeTransactions (65), v0: the state of transactional ids, from their coordinator (KIP-664).

Unlike Kafka's, the response names in tagged fields the client that uses the transactional id, if this broker has seen
it.
"""

from __future__ import annotations

from oncelog_broker.coordinator.client import Client
from oncelog_broker.coordinator.transaction.machine import TransactionMachine
from oncelog_broker.coordinator.transaction.metadata import NO_TIMESTAMP
from oncelog_broker.coordinator.transaction.states import IDLE
from oncelog_broker.runtime.answers import Answer, all_of, then
from oncelog_broker.runtime.steps import Steps
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.request.duplicate_names import once
from oncelog_broker.server.transactions.services import TransactionContext
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse

State = DescribeTransactionsResponse.TransactionState


def handle(request: DescribeTransactionsRequest, context: TransactionContext) -> Answer[DescribeTransactionsResponse]:
    answers = context.in_slices(_describe_each(request, context))
    return then(then(answers, all_of), lambda states: DescribeTransactionsResponse(transaction_states=states))


def _describe_each(request: DescribeTransactionsRequest, context: TransactionContext) -> Steps[list[Answer[State]]]:
    answers = list[Answer[State]]()
    for transactional_id in once(request.transactional_ids):
        answers.append(_describe(transactional_id, context))
        yield None
    return answers


def _describe(transactional_id: str, context: TransactionContext) -> Answer[State]:
    if not transactional_id:
        return _failed(transactional_id, ErrorCode.INVALID_REQUEST)
    if not context.may(rules.DESCRIBE_TRANSACTION, transactional_id):
        return _failed(transactional_id, rules.DESCRIBE_TRANSACTION.refused)
    transactions = context.services.transactions
    state: Answer[State] = transactions.runtime.read(
        transactional_id,
        lambda machine: _found(transactional_id, machine, transactions.last_clients.of(transactional_id)),
        lambda error: _failed(transactional_id, error.code),
    )
    if context.services.authorizer is None:
        return state
    return then(state, lambda state: context.in_slices(_as_they_may_see(state, context)))


def _as_they_may_see(state: State, context: TransactionContext) -> Steps[State]:
    topics = []
    for topic in state.topics:
        if context.may(rules.TOPIC_OF_TRANSACTION, topic.topic):
            topics.append(topic)
        yield None
    state.topics = topics
    return state


def _found(transactional_id: str, machine: TransactionMachine, client: Client | None) -> State:
    metadata = machine.transactions.get(transactional_id)
    if metadata is None:
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(metadata.partitions):
        topics.setdefault(topic, []).append(partition)
    return State(
        error_code=ErrorCode.NONE,
        transactional_id=transactional_id,
        transaction_state=metadata.state.shown,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_start_time_ms=NO_TIMESTAMP if metadata.state in IDLE else metadata.start_timestamp,
        producer_id=metadata.producer_id,
        producer_epoch=metadata.producer_epoch,
        topics=[State.TopicData(topic=topic, partitions=partitions) for topic, partitions in topics.items()],
        client_id=None if client is None else client.client_id,
        client_host=None if client is None else client.host,
    )


def _failed(transactional_id: str, code: ErrorCode) -> State:
    return State(
        error_code=code,
        transactional_id=transactional_id,
        transaction_state="",
        transaction_timeout_ms=0,
        transaction_start_time_ms=0,
        producer_id=0,
        producer_epoch=0,
        topics=[],
    )
