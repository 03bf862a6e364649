"""Tests that oncelog's serializers and those of confluent-kafka can read each other's values, with oncelog's schema
registry.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from broker_process import BrokerProcess
from confluent_kafka.schema_registry import Schema as TheirSchema
from confluent_kafka.schema_registry import SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer as TheirAvroDeserializer
from confluent_kafka.schema_registry.avro import AvroSerializer as TheirAvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer as TheirProtobufDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer as TheirProtobufSerializer
from confluent_kafka.serialization import MessageField
from confluent_kafka.serialization import SerializationContext as TheirContext
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from warm_commands import run_oncelog

from oncelog.serialization import (
    AvroDeserializer,
    AvroSerializer,
    Deserializer,
    JsonSchemaDeserializer,
    JsonSchemaSerializer,
    ProtobufDeserializer,
    ProtobufJsonSerializer,
    ProtobufSerializer,
    Reference,
    RegistryDeserializer,
    RegistryRefused,
    Schema,
    SchemaNotFound,
    SchemaRegistry,
    SerializationContext,
    SerializationError,
    Serializer,
    record_name,
    topic_record_name,
)
from oncelog_testing.registry import Registry

ORDER = '{"type":"record","name":"a.Order","fields":[{"name":"id","type":"int"}%s]}'
ORDER_JSON = '{"title":"Order","type":"object","properties":{"id":{"type":"integer"}},"required":["id"]}'
OPTIONAL, INT32, MESSAGE = 1, 5, 11


@pytest.fixture(scope="module")
def url(broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with Registry(broker.address, tmp_path_factory.mktemp("registry") / "log") as registry:
        yield registry.url


@pytest.fixture
async def registry(url: str) -> AsyncIterator[SchemaRegistry]:
    async with SchemaRegistry(url) as registry:
        yield registry


@pytest.fixture
def theirs(url: str) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": url}) as client:
        yield client


def message_class() -> Any:
    """Return the class of this message: `import "money.proto"; message Box { int32 n = 1; message Order { int32 id = 1;
    Money price = 2; } }`
    """
    pool = DescriptorPool()
    money = FileDescriptorProto(name="money.proto", package="m", syntax="proto3")
    money.message_type.add(name="Money").field.add(name="cents", number=1, type=INT32, label=OPTIONAL)
    pool.Add(money)
    file = FileDescriptorProto(name="order.proto", package="a", syntax="proto3", dependency=["money.proto"])
    box = file.message_type.add(name="Box")
    box.field.add(name="n", number=1, type=INT32, label=OPTIONAL)
    order = box.nested_type.add(name="Order")
    order.field.add(name="id", number=1, type=INT32, label=OPTIONAL)
    order.field.add(name="price", number=2, type=MESSAGE, label=OPTIONAL, type_name=".m.Money")
    pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName("a.Box.Order"))


CLASS = message_class()
MESSAGE_VALUE = CLASS(id=7, price={"cents": 5})
VALUES = {
    "avro": {"id": 7},
    "avro-bytes": b"\x01\x02",
    "avro-union": 7,
    "json": {"id": 7},
    "protobuf": MESSAGE_VALUE,
}
AVRO_SCHEMAS = {"avro": ORDER % "", "avro-bytes": '{"type":"bytes"}', "avro-union": '["null","int"]'}


def ours(kind: str, registry: SchemaRegistry) -> tuple[Serializer[Any], Deserializer[Any]]:
    match kind:
        case "json":
            return JsonSchemaSerializer(registry, ORDER_JSON), JsonSchemaDeserializer(registry)
        case "protobuf":
            return ProtobufSerializer(registry, CLASS), ProtobufDeserializer(CLASS)
    return AvroSerializer(registry, AVRO_SCHEMAS[kind]), AvroDeserializer(registry)


def confluents(kind: str, client: SchemaRegistryClient) -> tuple[Any, Any]:
    match kind:
        case "json":
            return JSONSerializer(ORDER_JSON, client), JSONDeserializer(None, schema_registry_client=client)
        case "protobuf":
            return TheirProtobufSerializer(CLASS, client), TheirProtobufDeserializer(CLASS, {}, client)
    return TheirAvroSerializer(client, AVRO_SCHEMAS[kind]), TheirAvroDeserializer(client)


@pytest.mark.parametrize("kind", VALUES)
async def test_confluent_kafka_and_we_write_and_read_the_same(
    registry: SchemaRegistry, theirs: SchemaRegistryClient, kind: str
) -> None:
    serializer, deserializer = ours(kind, registry)
    their_serializer, their_deserializer = confluents(kind, theirs)
    value, context = VALUES[kind], SerializationContext(f"same-{kind}")
    their_context = TheirContext(context.topic, MessageField.VALUE)
    written = await serializer.serialize(value, context)
    by_them = their_serializer(value, their_context)
    assert written is not None
    if kind != "json":  # confluent-kafka puts spaces between the JSON tokens
        assert written == by_them
    assert their_deserializer(written, their_context) == value
    assert await deserializer.deserialize(by_them, context) == value


@pytest.mark.parametrize("kind", VALUES)
async def test_a_program_without_the_schema_reads_what_confluent_kafka_wrote(
    registry: SchemaRegistry, theirs: SchemaRegistryClient, kind: str
) -> None:
    context = TheirContext(f"any-{kind}", MessageField.KEY)
    written = confluents(kind, theirs)[0](VALUES[kind], context)
    decoded = await RegistryDeserializer(registry).deserialize(written, SerializationContext(context.topic))
    assert decoded.type == kind.partition("-")[0].upper()
    assert decoded.value == ({"id": 7, "price": {"cents": 5}} if kind == "protobuf" else VALUES[kind])
    assert (await registry.schema(decoded.schema_id)).type == decoded.type


async def test_subject_strategies_agree_with_confluent_kafka(
    registry: SchemaRegistry, theirs: SchemaRegistryClient
) -> None:
    schema = ORDER % ',{"name":"strategy","type":"int","default":0}'
    for strategy, name, subject in (
        (record_name, "RECORD", "a.Order"),
        (topic_record_name, "TOPIC_RECORD", "strategies-a.Order"),
    ):
        await AvroSerializer[Any](registry, schema, subject=strategy).serialize(
            {"id": 1}, SerializationContext("strategies")
        )
        assert subject in await registry.subjects()
        options = {"subject.name.strategy.type": name, "auto.register.schemas": False}
        serializer = TheirAvroSerializer(theirs, schema, conf=options)
        assert serializer({"id": 1}, TheirContext("strategies", MessageField.VALUE))


async def test_a_schema_that_is_not_registered_is_only_registered_where_that_is_allowed(
    registry: SchemaRegistry,
) -> None:
    context = SerializationContext("strict")
    strict = AvroSerializer[Any](registry, ORDER % "", auto_register=False)
    latest = AvroSerializer[Any](registry)
    for serializer in (strict, latest):
        with pytest.raises(SchemaNotFound):
            await serializer.serialize({"id": 1}, context)
    written = await AvroSerializer[Any](registry, ORDER % "").serialize({"id": 1}, context)
    assert await strict.serialize({"id": 1}, context) == written
    assert await AvroSerializer[Any](registry).serialize({"id": 1}, context) == written


async def test_a_schema_that_earlier_readers_cannot_use_is_refused(registry: SchemaRegistry) -> None:
    context = SerializationContext("evolving")
    await AvroSerializer[Any](registry, ORDER % "").serialize({"id": 1}, context)
    with pytest.raises(RegistryRefused, match="must") as raised:
        await AvroSerializer[Any](registry, ORDER % ',{"name":"must","type":"int"}').serialize({"id": 1}, context)
    assert raised.value.status == 409


async def test_an_older_value_is_read_as_the_readers_schema_has_it(registry: SchemaRegistry) -> None:
    context = SerializationContext("readers")
    written = await AvroSerializer[Any](registry, ORDER % "").serialize({"id": 1}, context)
    reader = AvroDeserializer[Any](registry, ORDER % ',{"name":"note","type":"string","default":"none"}')
    assert await reader.deserialize(written, context) == {"id": 1, "note": "none"}


async def test_objects_are_written_and_read_by_functions_of_the_application(registry: SchemaRegistry) -> None:
    context = SerializationContext("objects")
    serializer = AvroSerializer[complex](registry, ORDER % "", to_dict=lambda value: {"id": int(value.real)})
    deserializer = AvroDeserializer[complex](registry, from_dict=lambda found: complex(found["id"]))
    assert await deserializer.deserialize(await serializer.serialize(3 + 0j, context), context) == 3 + 0j


async def test_referred_schemas_are_read_from_the_registry(
    registry: SchemaRegistry, theirs: SchemaRegistryClient
) -> None:
    money = '{"type":"record","name":"m.Money","fields":[{"name":"cents","type":"int"}]}'
    bill = '{"type":"record","name":"m.Bill","fields":[{"name":"sum","type":"m.Money"}]}'
    await registry.register("money", Schema(money))
    serializer = AvroSerializer[Any](registry, Schema(bill, references=(Reference("m.Money", "money", 1),)))
    written = await serializer.serialize({"sum": {"cents": 5}}, SerializationContext("bills"))
    assert TheirAvroDeserializer(theirs)(written, TheirContext("bills", MessageField.VALUE)) == {"sum": {"cents": 5}}
    decoded = await RegistryDeserializer(registry).deserialize(written, SerializationContext("bills"))
    assert decoded.value == {"sum": {"cents": 5}}
    part = json.dumps({"type": "integer"})
    theirs.register_schema("part", TheirSchema(part, "JSON"))
    whole = TheirSchema('{"properties":{"id":{"$ref":"part.json"}}}', "JSON", [SchemaReference("part.json", "part", 1)])
    by_them = JSONSerializer(whole, theirs)({"id": 7}, TheirContext("wholes", MessageField.VALUE))
    deserializer = JsonSchemaDeserializer[Any](registry)
    assert await deserializer.deserialize(by_them, SerializationContext("wholes")) == {"id": 7}
    with pytest.raises(SerializationError, match=r"\$\.id"):
        await deserializer.deserialize(by_them[:5] + b'{"id":"x"}', SerializationContext("wholes"))


async def test_a_dict_becomes_a_protobuf_message_by_the_latest_schema(
    registry: SchemaRegistry, theirs: SchemaRegistryClient
) -> None:
    context = SerializationContext("same-dicts")
    expected = await ProtobufSerializer(registry, CLASS).serialize(MESSAGE_VALUE, context)
    serializer = ProtobufJsonSerializer(registry, message="a.Box.Order")
    assert await serializer.serialize({"id": 7, "price": {"cents": 5}}, context) == expected


async def test_a_value_of_another_type_of_schema_is_refused(registry: SchemaRegistry) -> None:
    context = SerializationContext("types")
    written = await JsonSchemaSerializer[Any](registry, ORDER_JSON).serialize({"id": 7}, context)
    with pytest.raises(SerializationError, match="of the type JSON, not AVRO"):
        await AvroDeserializer[Any](registry).deserialize(written, context)
    with pytest.raises(SerializationError, match="of the type JSON, not AVRO"):
        await AvroSerializer[Any](registry).serialize({"id": 7}, context)


# --- the commands


def oncelog(broker: BrokerProcess, *arguments: str, stdin: str = "", code: int = 0) -> tuple[str, str]:
    """Run a command, and return its standard output and standard error."""
    done = run_oncelog(*arguments, stdin=stdin.encode(), environment={"ONCELOG_BOOTSTRAP_SERVER": broker.address})
    assert done.returncode == code, done.stderr.decode()
    return done.stdout.decode(), done.stderr.decode()


def test_the_commands_write_and_read_by_the_registry(
    broker: BrokerProcess, url: str, theirs: SchemaRegistryClient, topic: str, tmp_path: Path
) -> None:
    (tmp_path / "order.avsc").write_text(ORDER % "")
    by_registry = ("--value", "avro", "--registry", url)
    _, told = oncelog(broker, "produce", topic, *by_registry, stdin='{"id": 1}\n', code=1)
    assert f"Subject '{topic}-value' not found" in told
    oncelog(broker, "produce", topic, *by_registry, "--value-schema", str(tmp_path / "order.avsc"), stdin='{"id": 1}\n')
    oncelog(broker, "produce", topic, *by_registry, "--json", stdin='{"key": "k", "value": {"id": 2}}\n')
    _, told = oncelog(broker, "produce", topic, *by_registry, stdin='{"id": "x"}\n', code=1)
    assert "line 1: the value.id must be an int" in told
    shown, _ = oncelog(broker, "consume", topic, *by_registry)
    assert shown == '{"id":1}\n{"id":2}\n'
    lines, _ = oncelog(broker, "consume", topic, "--value", "registry", "--registry", url, "-o", "json")
    assert [(line["key"], line["value"]) for line in map(json.loads, lines.splitlines())] == [
        (None, {"id": 1}),
        ("k", {"id": 2}),
    ]
    written, _ = oncelog(broker, "consume", topic, "--json", "-n", "1")
    raw = b64decode(json.loads(written)["value"]) if "base64" in written else json.loads(written)["value"].encode()
    assert TheirAvroDeserializer(theirs)(raw, TheirContext(topic, MessageField.VALUE)) == {"id": 1}
    oncelog(broker, "produce", topic, "--json", stdin=lines.splitlines()[0].replace('{"id":1}', '"no Avro"') + "\n")
    _, told = oncelog(broker, "consume", topic, *by_registry, code=1)
    assert f"{topic}:0, offset 2: the value" in told
    shown, told = oncelog(broker, "consume", topic, *by_registry, "--invalid", "bytes")
    assert shown.endswith("no Avro\n")
    assert "offset 2" in told


def test_a_protobuf_value_is_written_and_read_by_the_commands(
    broker: BrokerProcess, url: str, registry: SchemaRegistry, topic: str, tmp_path: Path
) -> None:
    file = FileDescriptorProto(name="order.proto", package="a", syntax="proto3")
    file.message_type.add(name="Order").field.add(name="id", number=1, type=INT32, label=OPTIONAL)
    (tmp_path / "order.desc").write_bytes(FileDescriptorSet(file=[file]).SerializeToString())
    options = ("--value", "protobuf", "--registry", url)
    oncelog(broker, "produce", topic, *options, "--value-schema", str(tmp_path / "order.desc"), stdin='{"id": 7}\n')
    assert oncelog(broker, "consume", topic, *options)[0] == '{"id":7}\n'
    assert oncelog(broker, "consume", topic, *options, "-o", "yaml")[0].count("id: 7") == 1
