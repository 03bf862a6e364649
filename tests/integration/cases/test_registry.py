"""Tests the schema registry as its users see it: serializers of confluent-kafka, the REST interface, several
registries.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from broker_process import BrokerProcess
from confluent_kafka import DeserializingConsumer, SerializingProducer
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient, SchemaRegistryError
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from warm_commands import run_oncelog_text

from oncelog_testing.registry import Registry, RegistryStartError

AVRO = '{"type":"record","name":"Order","fields":[{"name":"id","type":"int"}%s]}'
MORE = ',{"name":"note","type":"string","default":""}'
CALL_SECONDS = 60.0


@pytest.fixture(scope="module")
def registry(broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    with Registry(broker.address, tmp_path_factory.mktemp("registry") / "log") as registry:
        yield registry


@pytest.fixture(scope="module")
def client(registry: Registry) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": registry.url}) as client:
        yield client


@pytest.fixture
def http(registry: Registry) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=registry.url, timeout=CALL_SECONDS) as client:
        yield client


def avro(text: str) -> dict[str, Any]:
    return {"schema": text}


# --- serializers


def _avro(client: SchemaRegistryClient) -> tuple[Any, Any, Any]:
    return AvroSerializer(client, AVRO % MORE), AvroDeserializer(client), {"id": 7, "note": "x"}


def _json(client: SchemaRegistryClient) -> tuple[Any, Any, Any]:
    text = '{"title":"Order","type":"object","properties":{"id":{"type":"integer"}},"required":["id"]}'
    return JSONSerializer(text, client), JSONDeserializer(text, schema_registry_client=client), {"id": 7}


def _protobuf(client: SchemaRegistryClient) -> tuple[Any, Any, Any]:
    options = {"use.deprecated.format": False}
    file = FileDescriptorProto(name="order.proto", syntax="proto3")
    file.message_type.add(name="Order").field.add(name="id", number=1, type=5, label=1)
    pool = DescriptorPool()
    pool.Add(file)
    order = GetMessageClass(pool.FindMessageTypeByName("Order"))
    return ProtobufSerializer(order, client, options), ProtobufDeserializer(order, options, client), order(id=7)


@pytest.mark.parametrize("made", [_avro, _json, _protobuf])
def test_serializers_of_confluent_kafka(broker: BrokerProcess, client: SchemaRegistryClient, made: Any) -> None:
    serializer, deserializer, value = made(client)
    topic = f"values{made.__name__}"
    producer = SerializingProducer({"bootstrap.servers": broker.address, "value.serializer": serializer})
    producer.produce(topic, value=value)
    assert producer.flush(CALL_SECONDS) == 0
    consumer = DeserializingConsumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "value.deserializer": deserializer,
        }
    )
    try:
        consumer.subscribe([topic])
        message = consumer.poll(CALL_SECONDS)
        assert message.value() == value
    finally:
        consumer.close()
    assert client.get_latest_version(f"{topic}-value").version == 1


def test_a_schema_that_earlier_readers_cannot_use_is_refused(client: SchemaRegistryClient) -> None:
    first = client.register_schema("evolving", Schema(AVRO % "", "AVRO"))
    assert client.register_schema("evolving", Schema(AVRO % MORE, "AVRO")) != first
    assert client.get_versions("evolving") == [1, 2]
    other = Schema(AVRO % ',{"name":"must","type":"int"}', "AVRO")
    with pytest.raises(SchemaRegistryError) as refused:
        client.register_schema("evolving", other)
    assert (refused.value.http_status_code, refused.value.error_code) == (409, 409)
    assert "must" in refused.value.error_message
    assert not client.test_compatibility("evolving", other)
    client.set_compatibility("evolving", "NONE")
    assert client.get_compatibility("evolving") == "NONE"
    assert client.register_schema("evolving", other) != first


def test_schemas_with_references_are_registered(client: SchemaRegistryClient) -> None:
    client.register_schema("colour", Schema('{"type":"enum","name":"Colour","symbols":["RED"]}', "AVRO"))
    used = SchemaReference("Colour", "colour", 1)
    text = AVRO % ',{"name":"colour","type":"Colour"}'
    schema_id = client.register_schema("coloured", Schema(text, "AVRO", [used]))
    assert client.get_schema(schema_id).references == [used]
    with pytest.raises(SchemaRegistryError) as refused:
        client.delete_version("colour", 1)
    assert refused.value.error_code == 42206


# --- the REST interface


def test_errors_have_the_codes_of_the_interface(http: httpx.Client) -> None:
    asked = {
        ("GET", "/subjects/none/versions", None): (404, 40401),
        ("GET", "/schemas/ids/99999", None): (404, 40403),
        ("GET", "/schemas/ids/x", None): (404, 404),
        ("GET", "/nothing", None): (404, 404),
        ("PATCH", "/subjects", None): (405, 405),
        ("POST", "/subjects/s/versions", "{"): (400, 400),
        ("POST", "/subjects/s/versions", "[]"): (422, 422),
        ("POST", "/subjects/s/versions", "{}"): (422, 42201),
        ("POST", "/subjects/s/versions", '{"schema":"{}"}'): (422, 42201),
        ("POST", "/subjects/s/versions", '{"schema":"true","schemaType":"XML"}'): (422, 42201),
        ("POST", "/subjects/s/versions", '{"schema":"true","ruleSet":{"domainRules":[]}}'): (422, 422),
        ("POST", f"/subjects/{'s' * 300}/versions", '{"schema":"\\"int\\""}'): (422, 42208),
        ("PUT", "/config/s", '{"compatibility":"SOME"}'): (422, 42203),
        ("GET", "/config/s", None): (404, 40408),
        ("PUT", "/mode", '{"mode":"OFF"}'): (422, 42204),
        ("DELETE", "/subjects/s", None): (404, 40401),
    }
    told = {}
    for method, path, body in asked:
        answer = http.request(method, path, content=body)
        told[method, path, body] = (answer.status_code, answer.json()["error_code"])
    assert told == asked
    http.post("/subjects/s/versions", json=avro('"int"')).raise_for_status()
    for version in ("0", "x", "²", "4294967296", "-2"):
        assert http.get(f"/subjects/s/versions/{version}").json()["error_code"] == 42202
    assert http.get("/subjects/s/versions/-1").json() == http.get("/subjects/s/versions/latest").json()
    assert http.get("/subjects/s/versions/1/schema").text == '"int"'


def test_subjects_may_have_any_name(http: httpx.Client) -> None:
    for name in ("a/b", "ü-value", "a b", "a%2Fversions"):
        path = "/subjects/" + httpx.URL(f"http://x/{name}").raw_path.decode()[1:].replace("/", "%2F")
        http.post(f"{path}/versions", json=avro('"string"')).raise_for_status()
        assert http.get(f"{path}/versions").json() == [1]


def test_pages_of_browsers_are_refused(http: httpx.Client) -> None:
    for headers in ({"origin": "http://evil.test"}, {"sec-fetch-site": "cross-site"}):
        assert http.get("/subjects", headers=headers).status_code == 403
    assert http.get("/subjects", headers={"host": "evil.test"}).status_code == 421


def test_a_body_that_is_too_long_is_refused(http: httpx.Client) -> None:
    assert http.post("/subjects/s", content=b"x" * 3_000_000).status_code == 413
    long = avro('{"type":"enum","name":"E","symbols":["%s"]}' % ("a" * 1_000_000))
    assert http.post("/subjects/long/versions", json=long).json()["error_code"] == 42201


DRAFT3 = '{"$schema":"http://json-schema.org/draft-03/schema#",%s}'


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ('{"type":"object"}', DRAFT3 % '"required":true'),
        ('{"type":"object"}', DRAFT3 % '"type":[{"type":"string"}]'),
        ('{"multipleOf":1%s}' % ("0" * 400), '{"multipleOf":0.1}'),
        ('{"type":"array"}', '{"prefixItems":5}'),
    ],
)
def test_a_schema_that_a_library_fails_at_is_refused(http: httpx.Client, topic: str, first: str, second: str) -> None:
    path = f"/subjects/{topic}/versions"
    http.post(path, json={"schema": first, "schemaType": "JSON"}).raise_for_status()
    answer = http.post(path, json={"schema": second, "schemaType": "JSON"})
    assert (answer.status_code, answer.json()["error_code"]) in ((422, 42201), (409, 409))


def test_half_a_character_is_refused(http: httpx.Client) -> None:
    body = b'{"schemaType":"JSON","schema":"{\\"title\\":\\"\\ud800\\"}"}'
    assert http.post("/subjects/half/versions", content=body).status_code == 422


def test_a_schema_whose_quotes_make_its_record_too_long_is_refused(http: httpx.Client) -> None:
    text = json.dumps({"enum": [f"{number:05}" for number in range(100_000)]}, separators=(",", ":"))
    answer = http.post("/subjects/quotes/versions", json={"schema": text, "schemaType": "JSON"})
    assert (answer.status_code, answer.json()["error_code"]) == (422, 42201), answer.text


def test_looking_up_a_subject_whose_name_ends_as_a_path_registers_nothing(http: httpx.Client) -> None:
    http.post("/subjects/paths%2Fversions/versions", json=avro('"int"')).raise_for_status()
    found = http.post("/subjects/paths%2Fversions", json=avro('"int"'))
    assert (found.json()["subject"], found.json()["version"]) == ("paths/versions", 1)
    assert http.get("/subjects/paths/versions").status_code == 404


def test_a_reference_that_was_deleted_for_good_is_missed(http: httpx.Client) -> None:
    http.post("/subjects/gone/versions", json=avro('{"type":"fixed","name":"Gone","size":1}')).raise_for_status()
    text = {"schema": AVRO % ',{"name":"g","type":"Gone"}', "references": [_reference("Gone", "gone")]}
    http.post("/subjects/refers/versions", json=text).raise_for_status()
    for subject in ("refers", "gone"):
        http.delete(f"/subjects/{subject}").raise_for_status()
        http.delete(f"/subjects/{subject}?permanent=true").raise_for_status()
    answer = http.post("/subjects/refers/versions", json=text)
    assert answer.json()["error_code"] == 42201, "it could not be parsed by any registry that starts now"


def test_a_chain_of_references_has_an_end(http: httpx.Client) -> None:
    http.put("/config/chain", json={"compatibility": "NONE"}).raise_for_status()
    http.post("/subjects/chain/versions", json={"schema": '{"title":"0"}', "schemaType": "JSON"}).raise_for_status()
    for number in range(1, 103):
        text = {
            "schema": json.dumps({"title": str(number)}),
            "schemaType": "JSON",
            "references": [{**_reference("same", "chain"), "version": number}],
        }
        answer = http.post("/subjects/chain/versions", json=text)
        if answer.status_code != 200:
            break
    assert (number, answer.json()["error_code"]) == (101, 42201)


def _reference(name: str, subject: str) -> dict[str, Any]:
    return {"name": name, "subject": subject, "version": 1}


# --- several registries


def test_a_topic_that_was_made_again_is_not_taken_for_the_old_one(
    broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    compact = ("--partitions", "1", "--config", "cleanup.policy=compact")
    with (
        Registry(broker.address, tmp_path / "log", "--topic", topic) as registry,
        httpx.Client(base_url=registry.url, timeout=CALL_SECONDS) as http,
    ):
        http.post("/subjects/s/versions", json=avro('"int"')).raise_for_status()
        run_oncelog_text("topics", "delete", topic, "-b", broker.address, "--yes")
        run_oncelog_text("topics", "create", topic, "-b", broker.address, *compact)
        assert http.get("/subjects").json()["error_code"] == 50001
        answer = http.post("/subjects/s/versions", json=avro('"long"'))
        assert answer.json()["error_code"] == 50001, "its id would go on from a topic that is gone"


def test_a_topic_that_was_made_again_and_is_longer_is_not_taken_for_the_old_one(
    broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    compact = ("--partitions", "1", "--config", "cleanup.policy=compact")
    with (
        Registry(broker.address, tmp_path / "log", "--topic", topic) as registry,
        httpx.Client(base_url=registry.url, timeout=CALL_SECONDS) as http,
    ):
        http.post("/subjects/s/versions", json=avro('"int"')).raise_for_status()
        run_oncelog_text("topics", "delete", topic, "-b", broker.address, "--yes")
        run_oncelog_text("topics", "create", topic, "-b", broker.address, *compact)
        filler = "".join(f"{number}=x\n" for number in range(50))
        run_oncelog_text("produce", topic, "-b", broker.address, "--key-separator", "=", stdin=filler)
        answers = [http.get("/subjects").json() for _ in range(3)]
        assert [answer["error_code"] for answer in answers] == [50001] * 3, answers
        assert "was deleted and created again" in answers[-1]["message"], "the fetch from the old offset fails once"


def test_a_write_that_the_cluster_refuses_says_why(broker: BrokerProcess, topic: str, tmp_path: Path) -> None:
    compact = ("--partitions", "1", "--config", "cleanup.policy=compact", "--config", "max.message.bytes=1000")
    run_oncelog_text("topics", "create", topic, "-b", broker.address, *compact)
    with (
        Registry(broker.address, tmp_path / "log", "--topic", topic) as registry,
        httpx.Client(base_url=registry.url, timeout=CALL_SECONDS) as http,
    ):
        long = avro('{"type":"enum","name":"E","symbols":["%s"]}' % ("a" * 5_000))
        answer = http.post("/subjects/s/versions", json=long).json()
        assert answer["error_code"] == 50001
        assert "MESSAGE_TOO_LARGE" in answer["message"]
        http.post("/subjects/s/versions", json=avro('"int"')).raise_for_status()


def test_two_references_of_one_name_are_refused(http: httpx.Client) -> None:
    for subject, size in (("first", 1), ("second", 2)):
        text = f'{{"type":"fixed","name":"Two","size":{size}}}'
        http.post(f"/subjects/{subject}/versions", json=avro(text)).raise_for_status()
    references = [_reference("Two", "first"), _reference("Two", "second")]
    answer = http.post("/subjects/both/versions", json={"schema": '"int"', "references": references})
    assert answer.json()["error_code"] == 42201
    assert "two references are called 'Two'" in answer.json()["message"]
    same = [_reference("Two", "first"), _reference("Two", "first")]
    http.post("/subjects/both/versions", json={"schema": '"int"', "references": same}).raise_for_status()


def test_registries_that_write_at_once_agree(broker: BrokerProcess, registry: Registry, tmp_path: Path) -> None:
    """Each id belongs to one schema, and each version of a subject to one schema, although two registries assign them
    simultaneously and one of the two is killed. A third registry reads the same schemas from the topic.
    """
    given: dict[str, set[int]] = {}

    def register(url: str, number: int) -> None:
        with httpx.Client(base_url=url, timeout=CALL_SECONDS) as http:
            for each in range(number, number + 20):
                text = f'{{"type":"fixed","name":"F","size":{each}}}'
                answer = http.post("/subjects/shared/versions", json=avro(text))
                if answer.status_code == 200:
                    given.setdefault(text, set()).add(answer.json()["id"])

    with Registry(broker.address, tmp_path / "second") as second:
        httpx.put(f"{second.url}/config/shared", json={"compatibility": "NONE"}).raise_for_status()
        threads = [
            threading.Thread(target=register, args=(url, first))
            for url, first in ((registry.url, 1), (second.url, 1), (registry.url, 11), (second.url, 11))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(given) == 30
    assert all(len(ids) == 1 for ids in given.values()), "one schema has one id, whoever was asked"
    assert len(set.union(*given.values())) == 30, "no id is of two schemas"
    with Registry(broker.address, tmp_path / "third") as third, httpx.Client(base_url=third.url) as http:
        assert http.get("/subjects/shared/versions").json() == list(range(1, 31))
        for text, ids in given.items():
            assert http.get(f"/schemas/ids/{next(iter(ids))}").json()["schema"] == text


def test_answered_registrations_survive_kill_9(broker: BrokerProcess, registry: Registry, tmp_path: Path) -> None:
    """A killed registry leaves the transaction of its last write either open or committed, and the other registries
    continue.
    """
    other = Registry(broker.address, tmp_path / "killed").start()
    first = httpx.post(f"{other.url}/subjects/kept/versions", json=avro('"int"'), timeout=CALL_SECONDS).json()["id"]
    writing = threading.Thread(target=_write_until_gone, args=(other.url,))
    writing.start()
    other.kill()
    writing.join()
    assert httpx.get(f"{registry.url}/schemas/ids/{first}").json() == {"schema": '"int"'}
    answer = httpx.post(f"{registry.url}/subjects/kept/versions", json=avro('"long"'), timeout=CALL_SECONDS)
    assert answer.json()["id"] != first


def _write_until_gone(url: str) -> None:
    try:
        for number in range(1, 1000):
            text = f'{{"type":"fixed","name":"G","size":{number}}}'
            httpx.post(f"{url}/subjects/gone{number}/versions", json=avro(text), timeout=CALL_SECONDS)
    except httpx.HTTPError:
        return


@pytest.mark.parametrize(
    ("partitions", "why"), [("2", "has 2 partitions, and a registry needs one"), ("1", r"cleanup\.policy=delete")]
)
def test_a_topic_that_would_lose_schemas_is_refused(
    broker: BrokerProcess, topic: str, tmp_path: Path, partitions: str, why: str
) -> None:
    run_oncelog_text("topics", "create", topic, "-b", broker.address, "--partitions", partitions)
    with pytest.raises(RegistryStartError, match=why):
        Registry(broker.address, tmp_path / "log", "--topic", topic).start()
