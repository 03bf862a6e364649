"""The JSON payloads of Kafka's ZooKeeper mode are parsed and encoded. The literals are the content of nodes as Kafka
writes them.
"""

import json

import pytest

from oncelog_broker.metadata.model import payloads
from oncelog_broker.metadata.model.payloads import (
    BrokerRegistration,
    ControllerRegistration,
    Endpoint,
    MalformedPayload,
    PartitionState,
    ProducerIdBlock,
    ReplicaAssignment,
    TopicAssignment,
)
from oncelog_protocol.uuids import uuid_from_string


def test_producer_id_block_is_exactly_as_in_s1():
    data = b'{"version":1,"broker":35,"block_start":"4000","block_end":"4999"}'
    block = ProducerIdBlock(35, 4000, 4999)
    assert payloads.encode_producer_id_block(block) == data
    assert payloads.parse_producer_id_block(data, "/x") == block


def test_broker_as_kafka_writes_it():
    data = (
        b'{"features":{"feature":{"min_version":1,"max_version":3}},"listener_security_protocol_map":{"CLIENT":"SSL",'
        b'"REPLICATION":"PLAINTEXT"},"endpoints":["CLIENT://host1:9092","REPLICATION://[::1]:9093"],"jmx_port":9999,'
        b'"port":9093,"host":"::1","version":5,"timestamp":"2233345666","rack":"dc1"}'
    )
    broker = BrokerRegistration(
        endpoints=(Endpoint("CLIENT", "host1", 9092, "SSL"), Endpoint("REPLICATION", "::1", 9093, "PLAINTEXT")),
        rack="dc1",
        features={"feature": (1, 3)},
        timestamp_ms=2233345666,
    )
    assert payloads.parse_broker(data, "/x") == broker
    ours = json.loads(payloads.encode_broker(broker))
    assert {**ours, "jmx_port": 9999} == json.loads(data)


def test_an_old_broker_without_a_protocol_map_names_its_listeners_by_protocol():
    data = b'{"version":2,"jmx_port":-1,"timestamp":"1","endpoints":["SSL://h:1"],"host":null,"port":-1}'
    assert payloads.parse_broker(data, "/x").endpoints == (Endpoint("SSL", "h", 1, "SSL"),)


def test_a_broker_without_a_plaintext_listener_has_no_host_for_old_readers():
    encoded = json.loads(payloads.encode_broker(BrokerRegistration((Endpoint("A", "h", 1, "SSL"),))))
    assert (encoded["host"], encoded["port"]) == (None, -1)
    assert "rack" not in encoded


def test_topic_as_kafka_writes_it():
    data = (
        b'{"removing_replicas":{},"partitions":{"0":[1,2],"10":[2,1]},"topic_id":"RnVr3PdORe2xN7b9GlYAAg",'
        b'"adding_replicas":{"10":[2]},"version":3}'
    )
    topic = TopicAssignment(
        uuid_from_string("RnVr3PdORe2xN7b9GlYAAg"),
        {0: ReplicaAssignment((1, 2)), 10: ReplicaAssignment((2, 1), adding_replicas=(2,))},
    )
    assert payloads.parse_topic(data, "/x") == topic
    assert json.loads(payloads.encode_topic(topic)) == json.loads(data)


def test_a_topic_from_before_ids_keeps_its_version():
    topic = payloads.parse_topic(b'{"version":1,"partitions":{"0":[1]}}', "/x")
    assert topic == TopicAssignment(None, {0: ReplicaAssignment((1,))})
    assert json.loads(payloads.encode_topic(topic))["version"] == 2


def test_partition_state_as_kafka_writes_it():
    data = b'{"controller_epoch":7,"leader":1,"version":1,"leader_epoch":3,"isr":[1,2]}'
    state = PartitionState(leader=1, leader_epoch=3, isr=(1, 2), controller_epoch=7)
    assert payloads.encode_partition_state(state) == data
    assert payloads.parse_partition_state(data, "/x") == state
    data = b'{"controller_epoch":7,"leader":-1,"version":1,"leader_epoch":4,"isr":[],"leader_recovery_state":1}'
    state = PartitionState(leader=-1, leader_epoch=4, isr=(), controller_epoch=7, leader_recovery_state=1)
    assert payloads.encode_partition_state(state) == data
    assert payloads.parse_partition_state(data, "/x") == state


def test_controller_epoch_cluster_id_and_config():
    controller = ControllerRegistration(3, 99)
    assert json.loads(payloads.encode_controller(controller)) == {"version": 1, "brokerid": 3, "timestamp": "99"}
    assert payloads.parse_controller(payloads.encode_controller(controller), "/x") == controller
    assert payloads.encode_controller_epoch(12) == b"12"
    assert payloads.parse_controller_epoch(b"12", "/x") == 12
    assert payloads.encode_cluster_id("abc") == b'{"version":"1","id":"abc"}'
    assert payloads.parse_cluster_id(b'{"version":"1","id":"abc"}', "/x") == "abc"
    data = b'{"version":1,"config":{"a":"1","retention.ms":"-1"}}'
    assert payloads.encode_config({"retention.ms": "-1", "a": "1"}) == data
    assert payloads.parse_config(data, "/x") == {"a": "1", "retention.ms": "-1"}
    assert payloads.parse_config(b'{"version":1}', "/x") == {}


PARSERS = [
    payloads.parse_broker,
    payloads.parse_topic,
    payloads.parse_partition_state,
    payloads.parse_config,
    payloads.parse_controller,
    payloads.parse_controller_epoch,
    payloads.parse_cluster_id,
    payloads.parse_producer_id_block,
]


@pytest.mark.parametrize("parse", PARSERS)
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"null",
        b'"x"',
        b"{",
        b"[" * 100_000,
        b'{"version":1',
        b"-1",
        b"1e400",
        b"NaN",
        b"1" * 30,
    ],
)
def test_a_bad_payload_raises_one_error_that_names_the_node(parse, data):
    if parse is payloads.parse_config and not data:
        return  # a node without settings, which exists only as the parent of other nodes
    with pytest.raises(MalformedPayload, match=r"^/the/node holds no valid metadata: ") as raised:
        parse(data, "/the/node")
    assert raised.value.path == "/the/node"


STATE = {"controller_epoch": 7, "leader": 1, "leader_epoch": 3, "isr": [1]}
BROKER = {"timestamp": "1", "endpoints": ["A://h:1"]}
BLOCK = {"broker": 1, "block_start": "0", "block_end": "999"}


@pytest.mark.parametrize(
    ("parse", "document", "fault"),
    [
        (payloads.parse_partition_state, STATE | {"leader": "1"}, "leader must be int"),
        (payloads.parse_partition_state, STATE | {"leader": True}, "leader must be int"),
        (payloads.parse_partition_state, STATE | {"isr": [1, "2"]}, "isr must list broker ids"),
        (payloads.parse_partition_state, {"leader": 1}, "leader_epoch is missing"),
        (payloads.parse_topic, {"partitions": {"x": [1]}}, "partitions must be a decimal"),
        (payloads.parse_topic, {"partitions": {"0": 1}}, "partitions must list broker ids"),
        (payloads.parse_topic, {"partitions": {}, "topic_id": "short"}, "topic_id: a uuid has 22"),
        (payloads.parse_broker, BROKER | {"endpoints": ["nonsense"]}, "endpoints: not LISTENER://host:port"),
        (payloads.parse_broker, BROKER | {"endpoints": [7]}, "endpoints: not LISTENER://host:port"),
        (payloads.parse_broker, BROKER | {"endpoints": ["A://h:port"]}, "endpoints must be a decimal"),
        (payloads.parse_broker, BROKER | {"features": {"f": 1}}, "not a JSON object"),
        (payloads.parse_config, {"config": {"a": 1}}, "the values must be strings"),
        (payloads.parse_producer_id_block, BLOCK | {"block_end": 999}, "block_end must be str"),
        (payloads.parse_producer_id_block, BLOCK | {"block_end": "9" * 20}, "block_end must be a decimal"),
        (payloads.parse_producer_id_block, BLOCK | {"block_start": "1000"}, "before its start"),
        (payloads.parse_cluster_id, {"id": 1}, "id must be str"),
    ],
)
def test_a_wrong_field_is_named(parse, document, fault):
    with pytest.raises(MalformedPayload, match=fault):
        parse(json.dumps(document).encode(), "/x")
