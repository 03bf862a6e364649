"""Tests requests about settings whose responses once differed from those of Apache Kafka 4.1."""

from __future__ import annotations

from broker_process import BrokerFactory, BrokerProcess
from raw_client import CREATE_TOPICS_VERSION, RawClient

from oncelog_broker.config.topic_keys import TOPIC_KEYS
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.alter_configs import AlterConfigsRequest
from oncelog_protocol.messages.create_topics import CreateTopicsRequest
from oncelog_protocol.messages.describe_configs import DescribeConfigsRequest, ResourceType
from oncelog_protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest

SET = 0
DELETE = 1


def settings_of(client: RawClient, topic: str, keys: list[str] | None) -> dict[str, str | None]:
    asked = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=ResourceType.TOPIC, resource_name=topic, configuration_keys=keys
    )
    (result,) = client.call(DescribeConfigsRequest(resources=[asked]), ApiKey.DESCRIBE_CONFIGS, 4).results
    return {config.name: config.value for config in result.configs}


def test_an_empty_list_of_keys_asks_for_all_of_them(broker: BrokerProcess, topic: str) -> None:
    with RawClient(broker.port) as client:
        client.create_topic(topic)
        assert settings_of(client, topic, []) == settings_of(client, topic, None)
        assert list(settings_of(client, topic, [])) == list(TOPIC_KEYS)


def test_a_resource_that_is_named_twice_is_refused_and_stays_as_it_is(broker: BrokerProcess, topic: str) -> None:
    def resource(name: str, value: str) -> IncrementalAlterConfigsRequest.AlterConfigsResource:
        kind = IncrementalAlterConfigsRequest.AlterConfigsResource
        change = kind.AlterableConfig(name="retention.ms", config_operation=SET, value=value)
        return kind(resource_type=ResourceType.TOPIC, resource_name=name, configs=[change])

    def replaced(name: str, value: str) -> AlterConfigsRequest.AlterConfigsResource:
        kind = AlterConfigsRequest.AlterConfigsResource
        configs = [kind.AlterableConfig(name="retention.ms", value=value)]
        return kind(resource_type=ResourceType.TOPIC, resource_name=name, configs=configs)

    other = topic + "-2"
    with RawClient(broker.port) as client:
        client.create_topic(topic)
        client.create_topic(other)
        before = settings_of(client, topic, ["retention.ms"])
        changes = [resource(topic, "1000"), resource(other, "3000"), resource(topic, "2000")]
        request = IncrementalAlterConfigsRequest(resources=changes, validate_only=False)
        altered = client.call(request, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1)
        expected = [ErrorCode.INVALID_REQUEST, ErrorCode.NONE, ErrorCode.INVALID_REQUEST]
        assert [response.error_code for response in altered.responses] == expected
        assert settings_of(client, topic, ["retention.ms"]) == before
        assert settings_of(client, other, ["retention.ms"]) == {"retention.ms": "3000"}
        changes = [replaced(topic, "1000"), replaced(topic, "2000")]
        whole = AlterConfigsRequest(resources=changes, validate_only=False)
        replacing = client.call(whole, ApiKey.ALTER_CONFIGS, 2)
        assert [response.error_code for response in replacing.responses] == [ErrorCode.INVALID_REQUEST] * 2
        assert settings_of(client, topic, ["retention.ms"]) == before


def test_a_malformed_change_is_refused_before_its_topic_is_looked_up(broker: BrokerProcess, topic: str) -> None:
    def answers(name: str, *values: str | None) -> tuple[int, int]:
        one, whole = IncrementalAlterConfigsRequest.AlterConfigsResource, AlterConfigsRequest.AlterConfigsResource
        changes = [one.AlterableConfig(name="retention.ms", config_operation=SET, value=value) for value in values]
        settings = [whole.AlterableConfig(name="retention.ms", value=value) for value in values]
        change = one(resource_type=ResourceType.TOPIC, resource_name=name, configs=changes)
        replacement = whole(resource_type=ResourceType.TOPIC, resource_name=name, configs=settings)
        changing = IncrementalAlterConfigsRequest(resources=[change], validate_only=False)
        replacing = AlterConfigsRequest(resources=[replacement], validate_only=False)
        changed = client.call(changing, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1).responses[0].error_code
        return changed, client.call(replacing, ApiKey.ALTER_CONFIGS, 2).responses[0].error_code

    with RawClient(broker.port) as client:
        client.create_topic(topic)
        before = settings_of(client, topic, None)
        for name in (topic, f"{topic}-unknown", ""):
            assert answers(name, None) == (ErrorCode.INVALID_REQUEST,) * 2
            assert answers(name, "1", "2") == (ErrorCode.INVALID_REQUEST,) * 2
        assert answers("", "1") == (ErrorCode.INVALID_REQUEST,) * 2
        assert answers(f"{topic}-unknown", "1") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,) * 2
        assert settings_of(client, topic, None) == before


def test_a_topic_can_be_made_by_a_script_for_kafka_but_not_under_a_name_that_is_kept(
    broker: BrokerProcess, topic: str
) -> None:
    wanted = CreateTopicsRequest.CreatableTopic
    configs = {"compression.zstd.level": "5", "remote.storage.enable": "false", "cleanup.policy": ""}
    request = CreateTopicsRequest(
        topics=[
            wanted(
                name=topic,
                num_partitions=1,
                replication_factor=1,
                assignments=[],
                configs=[wanted.CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
            ),
            wanted(name="__cluster_metadata", num_partitions=1, replication_factor=1, assignments=[], configs=[]),
        ]
    )
    with RawClient(broker.port) as client:
        answer = client.call(request, ApiKey.CREATE_TOPICS, CREATE_TOPICS_VERSION)
        assert [made.error_code for made in answer.topics] == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]
        assert settings_of(client, topic, list(configs)) == dict(sorted(configs.items()))


def test_keys_of_kafkas_without_effect_are_taken_and_named_in_the_log_once(broker_factory: BrokerFactory) -> None:
    """Tools for Kafka set keys that have no effect in oncelog, and `kafka-reassign-partitions` deletes settings that
    may never have been set.
    """
    throttle = "replica.alter.log.dirs.io.max.bytes.per.second"
    kind = IncrementalAlterConfigsRequest.AlterConfigsResource
    broker = broker_factory({}).start()

    def altered(client: RawClient, *changes: tuple[str, int, str | None]) -> ErrorCode:
        configs = [kind.AlterableConfig(name=name, config_operation=how, value=text) for name, how, text in changes]
        of_broker = kind(resource_type=ResourceType.BROKER, resource_name="1", configs=configs)
        request = IncrementalAlterConfigsRequest(resources=[of_broker], validate_only=False)
        return ErrorCode.of(client.call(request, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1).responses[0].error_code)

    with RawClient(broker.port) as client:
        assert altered(client, ("num.io.threads", SET, "8"), ("log.cleaner.backoff.ms", SET, "700")) == ErrorCode.NONE
        assert altered(client, ("num.io.threads", SET, "9"), (throttle, DELETE, None)) == ErrorCode.NONE
        assert altered(client, ("num.io.thread", SET, "9")) == ErrorCode.INVALID_CONFIG
        asked = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=ResourceType.BROKER, resource_name="1", configuration_keys=None
        )
        (result,) = client.call(DescribeConfigsRequest(resources=[asked]), ApiKey.DESCRIBE_CONFIGS, 4).results
        found = {config.name: config.value for config in result.configs}
        assert (found["num.io.threads"], found["log.cleaner.backoff.ms"]) == ("9", "700")
        assert found[throttle] == str(2**63 - 1), "its default"
    broker.stop()  # which writes all log lines
    logged = [line for line in broker.log.read_text().splitlines() if "changes nothing here" in line]
    assert len(logged) == 1
    assert "num.io.threads" in logged[0]
