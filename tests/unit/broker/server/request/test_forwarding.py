"""Requests for the controller are forwarded to it once, on behalf of the client and with the client's rights (S98,
KIP-590).
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.forwarding import CONTROLLER, OTHER, Authorizer, Brokers

from oncelog.errors import UnsupportedVersion
from oncelog_broker.replication.peers import PeerUnavailable
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.dispatch import envelope
from oncelog_broker.server.request.forwarding import FORWARDED, GRACE_SECONDS
from oncelog_broker.server.served import SERVED
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode, KafkaError, MalformedMessage
from oncelog_protocol.messages.create_partitions import CreatePartitionsRequest
from oncelog_protocol.messages.create_topics import CreateTopicsRequest
from oncelog_protocol.messages.delete_topics import DeleteTopicsRequest
from oncelog_protocol.messages.elect_leaders import ElectLeadersRequest
from oncelog_protocol.messages.envelope import EnvelopeRequest
from oncelog_protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest


@pytest.fixture
async def brokers() -> Any:
    made = await Brokers.start()
    yield made
    await made.stop()


def create(*names: str, timeout_ms: int = 30_000) -> CreateTopicsRequest:
    topic = CreateTopicsRequest.CreatableTopic
    return CreateTopicsRequest(
        topics=[topic(name=name, num_partitions=2, replication_factor=1, assignments=[], configs=[]) for name in names],
        timeout_ms=timeout_ms,
        validate_only=False,
    )


def codes(answer: Any) -> list[int]:
    return [each.error_code for each in answer.topics]


async def listed(brokers: Brokers, **options: Any) -> Any:
    request = ListPartitionReassignmentsRequest(topics=None, timeout_ms=2000)
    return await brokers.ask(OTHER, ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, request, **options)


@pytest.mark.parametrize("version", range(2, 8))
async def test_s98_any_broker_creates_topics_in_every_version(brokers: Brokers, version: int) -> None:
    answer = await brokers.ask(OTHER, ApiKey.CREATE_TOPICS, version, create("a", "b"))
    assert codes(answer) == [0, 0]
    assert {name: len(topic.partitions) for name, topic in (await brokers.image()).topics.items()} == {"a": 2, "b": 2}
    assert [each.api for each in brokers.passed_on] == [ApiKey.CREATE_TOPICS] * 2
    again = await brokers.ask(OTHER, ApiKey.CREATE_TOPICS, version, create("a"))
    assert codes(again) == [ErrorCode.TOPIC_ALREADY_EXISTS]


async def test_s98_any_broker_grows_and_deletes_topics(brokers: Brokers) -> None:
    await brokers.ask(OTHER, ApiKey.CREATE_TOPICS, 7, create("a", "b"))
    grown = CreatePartitionsRequest.CreatePartitionsTopic(name="a", count=3, assignments=None)
    request = CreatePartitionsRequest(topics=[grown], timeout_ms=30_000, validate_only=False)
    (result,) = (await brokers.ask(OTHER, ApiKey.CREATE_PARTITIONS, 3, request)).results
    assert result.error_code == ErrorCode.NONE
    topic_id = (await brokers.image()).topics["a"].topic_id
    by_id = DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=topic_id)
    by_name = DeleteTopicsRequest.DeleteTopicState(name="b", topic_id=bytes(16))
    asked = DeleteTopicsRequest(topics=[by_id, by_name], topic_names=[], timeout_ms=30_000)
    answer = await brokers.ask(OTHER, ApiKey.DELETE_TOPICS, 6, asked)
    assert [(each.name, each.error_code) for each in answer.responses] == [("a", 0), ("b", 0)]
    assert (await brokers.image()).topics == {}


async def test_every_broker_lists_reassignments_and_elects_leaders(brokers: Brokers) -> None:
    assert (await listed(brokers)).error_code == ErrorCode.NONE
    for version in (0, 1, 2):
        request = ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=30_000)
        assert (await brokers.ask(OTHER, ApiKey.ELECT_LEADERS, version, request)).error_code == ErrorCode.NONE


async def test_s98_the_broker_that_is_asked_decides_by_the_clients_rights(brokers: Brokers) -> None:
    """The client may create only one of two topics. The broker must not forward the other topic, because the controller
    would create it.
    """
    brokers.authorize(OTHER, Authorizer((rules.CREATE_TOPIC, "mine"), (rules.CREATED_CONFIGS, "mine")))
    answer = await brokers.ask(OTHER, ApiKey.CREATE_TOPICS, 7, create("mine", "theirs"))
    assert codes(answer) == [ErrorCode.NONE, ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    assert len(brokers.passed_on) == 1
    assert brokers.passed_on[0].principal == b"User:client"
    refused = await listed(brokers)
    assert refused.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert len(brokers.passed_on) == 1


async def test_settings_of_a_new_topic_need_the_right_to_see_them(brokers: Brokers) -> None:
    brokers.authorize(OTHER, Authorizer((rules.CREATE_TOPIC, "mine")))
    (told,) = (await brokers.ask(OTHER, ApiKey.CREATE_TOPICS, 7, create("mine"))).topics
    assert told.topic_config_error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert (told.num_partitions, told.configs) == (-1, [])


async def test_s98_a_forwarded_request_is_not_forwarded_again(brokers: Brokers) -> None:
    """Each of two brokers believes that the other one is the controller."""
    brokers.depose()
    answer = await asyncio.wait_for(brokers.ask(OTHER, ApiKey.CREATE_TOPICS, 7, create("a")), 10)
    assert codes(answer) == [ErrorCode.NOT_CONTROLLER]
    assert "no longer the controller" in answer.topics[0].error_message
    assert len(brokers.passed_on) == 1


async def test_no_request_is_forwarded_without_a_controller(brokers: Brokers) -> None:
    brokers.depose()
    brokers.forget_controller()
    answer = await brokers.ask(OTHER, ApiKey.CREATE_TOPICS, 7, create("a"))
    assert codes(answer) == [ErrorCode.NOT_CONTROLLER]
    assert "has no controller until" in answer.topics[0].error_message
    assert (await listed(brokers)).error_code == ErrorCode.NOT_CONTROLLER
    assert brokers.passed_on == []


@pytest.mark.parametrize(
    ("failure", "code", "words"),
    [
        (PeerUnavailable(CONTROLLER, "gone"), ErrorCode.REQUEST_TIMED_OUT, "It is unknown whether the change was made"),
        (PeerUnavailable(CONTROLLER, "no way", may_be_sent=False), ErrorCode.NOT_CONTROLLER, "cannot be reached"),
    ],
)
async def test_s98_a_request_is_sent_once_and_a_lost_answer_is_told_as_such(
    brokers: Brokers, failure: PeerUnavailable, code: ErrorCode, words: str
) -> None:
    brokers.failure = failure
    answer = await brokers.ask(OTHER, ApiKey.CREATE_TOPICS, 7, create("a"))
    assert codes(answer) == [code]
    assert words in answer.topics[0].error_message
    assert brokers.sent == 1


async def test_a_request_is_not_forwarded_to_an_older_controller(brokers: Brokers) -> None:
    """The older controller does not know Envelope, so the client must send its request to the controller itself."""
    failure = PeerUnavailable(CONTROLLER, "the broker does not have Envelope", may_be_sent=False)
    failure.__cause__ = UnsupportedVersion(ErrorCode.UNSUPPORTED_VERSION, "the broker does not have Envelope")
    brokers.failure = failure
    assert codes(await brokers.ask(OTHER, ApiKey.CREATE_TOPICS, 7, create("a"))) == [ErrorCode.NOT_CONTROLLER]


async def test_the_clients_timeout_goes_with_its_request(brokers: Brokers) -> None:
    await listed(brokers)
    assert brokers.timeouts == [2.0 + GRACE_SECONDS]


async def test_quotas_are_those_of_the_broker_that_was_asked(brokers: Brokers) -> None:
    """The broker that received the request charges the client's quota for the created partitions, unless the controller
    refuses them; the controller charges no quota.
    """
    await brokers.ask(OTHER, ApiKey.CREATE_TOPICS, 7, create("a"))
    await brokers.ask(OTHER, ApiKey.CREATE_TOPICS, 7, create("a"))
    assert brokers.mutations == [(OTHER, 2, None), (OTHER, 2, ErrorCode.TOPIC_ALREADY_EXISTS)]


def packed(key: int, version: int) -> EnvelopeRequest:
    data = key.to_bytes(2) + version.to_bytes(2) + bytes(10)
    return EnvelopeRequest(request_data=data, request_principal=b"User:x", client_host_address=b"")


async def test_s98_only_brokers_may_send_envelopes(brokers: Brokers) -> None:
    context = brokers.context(CONTROLLER, ApiKey.ENVELOPE, 0, listener="CLIENTS")
    answer = envelope.handle(packed(ApiKey.CREATE_TOPICS, 7), context)
    assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED  # type: ignore[union-attr]


@pytest.mark.parametrize("key", sorted(SERVED.keys() - FORWARDED))
async def test_an_envelope_holds_controller_requests_only(brokers: Brokers, key: int) -> None:
    context = brokers.context(CONTROLLER, ApiKey.ENVELOPE, 0)
    answer = envelope.handle(packed(key, SERVED[key].versions.high), context)
    assert answer.error_code == ErrorCode.INVALID_REQUEST  # type: ignore[union-attr]


async def test_an_empty_envelope_or_one_of_an_unknown_version_is_refused(brokers: Brokers) -> None:
    context = brokers.context(CONTROLLER, ApiKey.ENVELOPE, 0)
    answer = envelope.handle(packed(ApiKey.CREATE_TOPICS, 99), context)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION  # type: ignore[union-attr]
    with pytest.raises(MalformedMessage):
        envelope.handle(EnvelopeRequest(request_data=b"\0", client_host_address=b""), context)


async def test_an_oversized_request_must_be_sent_to_the_controller_itself(brokers: Brokers) -> None:
    topic = CreateTopicsRequest.CreatableTopic
    setting = topic.CreatableTopicConfig(name="retention.ms", value="1" * 30_000)
    large = topic(name="a", num_partitions=1, replication_factor=1, assignments=[], configs=[setting] * 700)
    with pytest.raises(KafkaError, match="send it to broker 1 itself"):
        await brokers.pass_on(CreateTopicsRequest(topics=[large], timeout_ms=1000))
    assert brokers.sent == 0
