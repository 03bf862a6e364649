"""Tests that a client without rights gets exactly the response in the table, in every version of every API, and no
other information.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from authorization_cases import (
    ABSENT,
    ALLOWED_GROUP,
    ALLOWED_TRANSACTION,
    ASKED_FOR_BY_OTHERS,
    CASES,
    SECRET,
    Case,
    Names,
    codes,
)
from broker_process import BrokerProcess
from foreign_clients import eventually
from raw_client import CREATE_TOPICS_VERSION, RawClient

from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.served import SERVED
from oncelog_protocol.acls import WILDCARD, AclOperation, AclPermission, PatternType, ResourceType
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from oncelog_protocol.messages.create_acls import CreateAclsRequest
from oncelog_protocol.messages.create_topics import CreateTopicsRequest
from oncelog_protocol.messages.describe_transactions import DescribeTransactionsRequest
from oncelog_protocol.messages.find_coordinator import CoordinatorType, FindCoordinatorRequest
from oncelog_protocol.messages.init_producer_id import InitProducerIdRequest
from oncelog_protocol.messages.metadata import MetadataRequest
from oncelog_protocol.messages.offset_commit import OffsetCommitRequest

AUTHORIZER = {
    "authorizer.class.name": "StandardAuthorizer",
    "auto.create.topics.enable": "true",
    "transaction.two.phase.commit.enable": "true",
}
PRIVILEGED, UNPRIVILEGED = "127.0.0.1", "127.0.0.2"
"""In these tests every client is User:ANONYMOUS, so only the client's host decides its rights."""
REFUSALS = frozenset(rules.REFUSAL.values())
TOPIC, GROUP, TRANSACTION, CLUSTER = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.TRANSACTIONAL_ID,
    ResourceType.CLUSTER,
)
ALL, READ, WRITE, DELETE = AclOperation.ALL, AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE
ACLS = (
    *((kind, WILDCARD, PRIVILEGED, ALL) for kind in (TOPIC, GROUP, TRANSACTION)),
    (CLUSTER, "kafka-cluster", PRIVILEGED, ALL),
    (GROUP, ALLOWED_GROUP, UNPRIVILEGED, READ),
    (GROUP, ALLOWED_GROUP, UNPRIVILEGED, DELETE),
    (TRANSACTION, ALLOWED_TRANSACTION, UNPRIVILEGED, WRITE),
    (TOPIC, "to-look-at", UNPRIVILEGED, AclOperation.DESCRIBE),
    (TOPIC, "mine", UNPRIVILEGED, AclOperation.CREATE),
)


class UnprivilegedClient(RawClient):
    """A client that connects from the unprivileged address of this host."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.socket.close()
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60.0, source_address=(UNPRIVILEGED, 0))


def create_acls(client: RawClient) -> None:
    creations = [
        CreateAclsRequest.AclCreation(
            resource_type=kind,
            resource_name=name,
            resource_pattern_type=PatternType.LITERAL,
            principal="User:ANONYMOUS",
            host=host,
            operation=operation,
            permission_type=AclPermission.ALLOW,
        )
        for kind, name, host, operation in ACLS
    ]
    answer = client.call(CreateAclsRequest(creations=creations), ApiKey.CREATE_ACLS, 3)
    assert [result.error_code for result in answer.results] == [0] * len(ACLS)


def commit_offset(client: RawClient, group: str) -> bool:
    """Return whether the offset commit succeeded; a commit fails while the coordinator loads its log."""
    topic = OffsetCommitRequest.OffsetCommitRequestTopic
    partition = topic.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=3, committed_leader_epoch=-1, committed_metadata=""
    )
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[topic(name=SECRET.topic, partitions=[partition])],
    )
    (answer,) = client.call(request, ApiKey.OFFSET_COMMIT, 8).topics[0].partitions
    return bool(answer.error_code == 0)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BrokerProcess, Names]]:
    """Start a broker with resources that the unprivileged address may not see; yield the broker and the resources'
    names.
    """
    data = tmp_path_factory.mktemp("guarded") / "data"
    prepare(data)
    with BrokerProcess(data, AUTHORIZER) as process:
        with RawClient(process.port) as client:
            answer = client.call(MetadataRequest(topics=None), ApiKey.METADATA, CREATE_TOPICS_VERSION + 5)
            (topic_id,) = (topic.topic_id for topic in answer.topics if topic.name == SECRET.topic)
        yield process, Names(SECRET.topic, topic_id, SECRET.group, SECRET.transaction)
    assert "Traceback" not in process.log.read_text()


def prepare(data: Path) -> None:
    """Create the resources and the rights, as a client with all rights."""
    with (
        BrokerProcess(data, {**AUTHORIZER, "super.users": "User:ANONYMOUS"}) as process,
        RawClient(process.port) as client,
    ):
        client.create_topic(SECRET.topic)
        find_coordinator(client, SECRET.group, CoordinatorType.GROUP)
        find_coordinator(client, SECRET.transaction, CoordinatorType.TRANSACTION)
        for group in (SECRET.group, ALLOWED_GROUP):
            eventually(partial(commit_offset, client, group), "committed")
        eventually(partial(init_transaction, client), "initialised")
        create_acls(client)


def find_coordinator(client: RawClient, key: str, kind: int) -> None:
    client.call(FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]), ApiKey.FIND_COORDINATOR, 4)


def init_transaction(client: RawClient) -> bool:
    find_coordinator(client, SECRET.transaction, 1)
    request = InitProducerIdRequest(transactional_id=SECRET.transaction, transaction_timeout_ms=60_000)
    return bool(client.call(request, ApiKey.INIT_PRODUCER_ID, 3).error_code == 0)


def test_every_rule_has_a_case() -> None:
    asked = {case.rule for case in CASES} | ASKED_FOR_BY_OTHERS.keys() | NOT_ASKED_HERE
    missing = [rule for rule in rules.RULES if rule.api in SERVED and rule not in asked]
    assert not missing


def test_every_version_of_every_api_is_asked() -> None:
    asked = {(case.rule.api, version) for case in CASES for version in case.versions}
    served = {(one.key, v) for one in SERVED.values() for v in range(one.versions.low, one.versions.high + 1)}
    missing = {(key, version) for key, version in served - asked if key not in rules.WITHOUT_RULE}
    assert not missing


NOT_ASKED_HERE = frozenset(
    {
        rules.TOPIC_OF_TRANSACTION,
        rules.CREATED_CONFIGS,
        rules.CONSUMER_MATCHED_TOPICS,
        rules.TOPIC_OF_CONSUMER_GROUP,
        rules.TOPIC_OF_SHARE_GROUP,
        rules.SHARE_ACKNOWLEDGE,
        rules.DESCRIBE_SHARE_OFFSETS,
        rules.DELETE_SHARE_OFFSETS,
        rules.STREAMS_CREATE_TOPIC,
        rules.TOPIC_OF_STREAMS_GROUP,
    }
)
"""The authorization rules that no single request can test, because they depend on a state that earlier requests create.
The tests below, and the tests of the handlers of the consumer protocol, of share groups and of streams groups, check
these authorization rules.
"""


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.name} v{case.versions.start}")
def test_a_refusal_is_as_the_table_says(guarded: tuple[BrokerProcess, Names], case: Case) -> None:
    broker, secret = guarded
    with UnprivilegedClient(broker.port) as client:
        for version in case.versions:
            answer = client.call(case.request(version, secret), case.rule.api, version)
            assert case.expected(answer) is True, (version, case.expected(answer))
            if case.is_like_absent:
                absent = client.call(case.request(version, ABSENT), case.rule.api, version)
                assert as_if_it_were(secret, absent) == shown(answer), version


def shown(answer: object) -> str:
    return re.sub(r" at 0x\w+", "", repr(answer))


def as_if_it_were(secret: Names, answer: object) -> str:
    """Return the response about missing resources, with their names replaced by the names of existing resources."""
    text = shown(answer)
    for name, absent in zip(secret, ABSENT, strict=True):
        text = text.replace(repr(absent), repr(name))
    return text


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if not case.extra.get("cursor")],
    ids=lambda case: f"{case.name} v{case.versions.start}",
)
def test_an_authorized_request_is_not_refused(guarded: tuple[BrokerProcess, Names], case: Case) -> None:
    broker, _ = guarded
    if case.rule in ENDS_SOMETHING:
        pytest.skip("it would be done")
    version = case.versions[-1]
    with RawClient(broker.port) as client:
        answer = client.call(case.request(version, ABSENT), case.rule.api, version)
    refused = {code for code in codes(answer) if code in REFUSALS}
    assert not refused or case.rule in REFUSED_FOR_OTHER_REASONS


ENDS_SOMETHING = frozenset({rules.CONTROLLED_SHUTDOWN, rules.DELETE_ACLS, rules.CREATE_ACLS})
REFUSED_FOR_OTHER_REASONS = frozenset({rules.FETCH_AS_FOLLOWER})
"""The broker that the request names does not exist, so the response has another error."""


def test_the_creator_of_a_topic_sees_its_settings_only_with_the_right(guarded: tuple[BrokerProcess, Names]) -> None:
    broker, _ = guarded
    topic = CreateTopicsRequest.CreatableTopic(
        name="mine", num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    with UnprivilegedClient(broker.port) as client:
        (answer,) = client.call(CreateTopicsRequest(topics=[topic]), ApiKey.CREATE_TOPICS, 7).topics
    assert answer.error_code == ErrorCode.NONE
    assert answer.topic_config_error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert (answer.num_partitions, answer.replication_factor, answer.configs) == (-1, -1, [])


def test_a_transaction_is_described_without_the_topics_that_are_not_to_be_seen(
    guarded: tuple[BrokerProcess, Names],
) -> None:
    broker, _ = guarded
    with RawClient(broker.port) as owner, UnprivilegedClient(broker.port) as other:
        begin_transaction(owner, ALLOWED_TRANSACTION)
        asked = DescribeTransactionsRequest(transactional_ids=[ALLOWED_TRANSACTION])
        seen, not_seen = (
            client.call(asked, ApiKey.DESCRIBE_TRANSACTIONS, 0).transaction_states[0] for client in (owner, other)
        )
    assert [topic.topic for topic in seen.topics] == [SECRET.topic]
    assert (not_seen.error_code, not_seen.topics) == (ErrorCode.NONE, [])


def begin_transaction(client: RawClient, transactional_id: str) -> None:
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
    producer = client.call(request, ApiKey.INIT_PRODUCER_ID, 3)
    topic = AddPartitionsToTxnTopic(name=SECRET.topic, partitions=[0])
    added = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=[topic],
    )
    answer = client.call(added, ApiKey.ADD_PARTITIONS_TO_TXN, 3)
    assert answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == ErrorCode.NONE
