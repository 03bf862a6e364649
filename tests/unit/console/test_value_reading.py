"""Values are decoded by their schemas: a hostile value, schema or registry leads to a reported problem."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import msgpack
import pytest
import pytest_asyncio
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet

from oncelog.serialization import Schema, SchemaRegistry
from oncelog.serialization.wire import framed
from oncelog_console.limits import MAX_SCHEMAS, MAX_TEXTS_CHARACTERS
from oncelog_console.values.reader import ReadAs, Reading, SchemaFile, ValueReader, schema_id_of
from oncelog_console.values.reading import Reader
from oncelog_console.values.tasks import Task, WrittenWith, packed, result_of, task_of
from oncelog_console.values.workers import TaskFailed, Workers

MEGABYTE = 1024 * 1024
ORDER = '{"type":"record","name":"Order","fields":[{"name":"id","type":"int"},{"name":"note","type":"string"}]}'
LIST = '{"type":"record","name":"Node","fields":[{"name":"next","type":["null","Node"]}]}'
AVRO_VALUE = b"\x0e\x06tea"  # the value has id 7 and note "tea"
BRIEF = """
import sys
import oncelog_console.limits as limits
limits.TASK_SECONDS, limits.WORKER_BYTES = 2.0, 512 * 2**20
from oncelog_console.values.worker import main
main()
"""
"""A program for a worker with 512 MiB, whose tasks may take 2 s."""


class FakeRegistry:
    """A registry with these schemas. `asked` lists the ids that were requested from it."""

    def __init__(self, **schemas: Schema) -> None:
        self._schemas = {int(name.removeprefix("id")): schema for name, schema in schemas.items()}
        self.asked: list[int] = []

    async def schema(self, schema_id: int, form: str = "") -> Schema:
        self.asked.append(schema_id)
        return self._schemas[schema_id]

    async def referred(self, schema: Schema, form: str = "") -> dict[str, Schema]:
        return {}


def as_registry(fake: FakeRegistry) -> SchemaRegistry:
    return cast(SchemaRegistry, fake)


def node_schema() -> str:
    """Return `message Node { Node next = 1; bytes data = 2; }` in the serialized form that registries return."""
    file = FileDescriptorProto(name="node.proto", syntax="proto3")
    node = file.message_type.add(name="Node")
    optional = FieldDescriptorProto.LABEL_OPTIONAL
    node.field.add(name="next", number=1, type=FieldDescriptorProto.TYPE_MESSAGE, label=optional, type_name=".Node")
    node.field.add(name="data", number=2, type=FieldDescriptorProto.TYPE_BYTES, label=optional)
    return b64encode(file.SerializeToString()).decode()


def nested_protobuf(depth: int) -> bytes:
    value = b""
    for _ in range(depth):
        size, length = len(value), b""
        while size > 0x7F:
            length += bytes([size & 0x7F | 0x80])
            size >>= 7
        value = b"\x0a" + length + bytes([size]) + value
    return value


@pytest_asyncio.fixture
async def workers() -> AsyncIterator[Workers]:
    made = Workers((sys.executable, "-c", BRIEF))
    yield made
    await made.close()


async def read_one(reader: ValueReader, value: bytes, read_as: ReadAs = ReadAs.AUTOMATIC, **how: Any) -> Reading | None:
    (found,) = await reader.read("orders", [value], read_as, characters=1000, **how)
    return found.reading


# --- tasks


def test_tasks_and_results_pass_as_bytes_whatever_is_in_them() -> None:
    task = Task([b"\xff", None], [0, None], [WrittenWith("{}", "AVRO", {"a": ("{}", "AVRO")})], "$.\udc80", 5, True)
    again = task_of(packed(task)[4:])
    assert (again.values, again.expression) == ([b"\xff", None], "$.\udc80")
    assert again.schemas[0].referred == {"a": ["{}", "AVRO"]}
    result = Reader().done(Task([b'{"a": "\\ud800"}'], [0], [WrittenWith()], characters=10))
    assert result_of(packed(result)[4:]).problems[0] is not None


def test_what_is_told_of_many_values_has_a_limit() -> None:
    long = msgpack.packb("x" * (MAX_TEXTS_CHARACTERS // 2))
    result = Reader().done(Task([long] * 3, [0] * 3, [WrittenWith()], characters=2**31))
    assert [text is None for text in result.texts] == [False, True, True]
    assert "no room" in str(result.problems[1])


def test_a_schema_id_stands_behind_a_zero_byte() -> None:
    assert [schema_id_of(value) for value in (framed(7, b""), b"\0\0\0", b"\1\0\0\0\7", b"", None)] == [
        7, None, None, None, None,
    ]  # fmt: skip


# --- formats


async def test_values_are_read_by_registry_file_and_as_message_pack(workers: Workers, tmp_path: Path) -> None:
    registry = FakeRegistry(id7=Schema(ORDER), id8=Schema(node_schema(), "PROTOBUF"), id9=Schema("{}", "JSON"))
    reader = ValueReader(workers, as_registry(registry))
    document = '{"id": 7, "note": "tea"}'
    assert await read_one(reader, framed(7, AVRO_VALUE)) == Reading("Avro, schema 7", document)
    assert await read_one(reader, framed(8, b"\0\x12\x02hi")) == Reading("Protobuf, schema 8", '{"data": "aGk="}')
    assert await read_one(reader, framed(9, b'{"a": 1}')) == Reading("JSON Schema, schema 9", '{"a": 1}')
    assert await read_one(reader, b"plain text") is None
    assert await read_one(reader, framed(7, AVRO_VALUE), ReadAs.BYTES) is None
    packed_value = msgpack.packb({"id": 7, b"raw": b"\xff", 3: [None, True]})
    read = await read_one(reader, packed_value, ReadAs.MESSAGE_PACK)
    assert read == Reading("MessagePack", '{"id": 7, "raw": "base64:/w==", "3": [null, true]}')
    path = tmp_path / "order.avsc"
    path.write_text(ORDER)
    by_file = ValueReader(workers, None, {"orders": SchemaFile(path)})
    assert await read_one(by_file, AVRO_VALUE) == Reading("by order.avsc", document)
    assert await read_one(by_file, AVRO_VALUE, is_key=True) is None, "the file is for values"
    descriptors = tmp_path / "node.desc"
    file = FileDescriptorProto.FromString(__import__("base64").b64decode(node_schema()))
    descriptors.write_bytes(FileDescriptorSet(file=[file]).SerializeToString())
    by_descriptor = ValueReader(workers, None, {"orders": SchemaFile(descriptors, "Node")})
    assert (await read_one(by_descriptor, b"\x12\x02hi")) == Reading("by node.desc", '{"data": "aGk="}')


async def test_an_expression_is_true_of_what_a_value_says(workers: Workers) -> None:
    reader = ValueReader(workers, as_registry(FakeRegistry(id7=Schema(ORDER))))
    values = [framed(7, AVRO_VALUE), framed(7, b"\x02\x02x"), b'{"id": 9}', None]
    found = await reader.read("orders", values, ReadAs.AUTOMATIC, expression="$.id > 6", characters=5)
    assert [each.matches for each in found] == [True, False, True, False]
    assert found[0].reading == Reading("Avro, schema 7", '{"id"', True)


async def test_a_page_asks_the_registry_for_few_schemas(workers: Workers) -> None:
    schemas = {f"id{n}": Schema('"int"') for n in range(MAX_SCHEMAS + 5)}
    registry = FakeRegistry(**schemas)
    values = [framed(n, b"\x02") for n in range(MAX_SCHEMAS + 5)]
    found = await ValueReader(workers, as_registry(registry)).read("o", values, ReadAs.AUTOMATIC, characters=9)
    assert len(registry.asked) == MAX_SCHEMAS
    assert [each.reading.problem for each in found if each.reading][-1] == f"more than {MAX_SCHEMAS} schemas"
    assert next(each.reading.text for each in found if each.reading) == "1"


# --- hostile values and schemas


async def hostile_result(workers: Workers, value: bytes, schema: Schema | None = None, **how: Any) -> str:
    """Return the text or the problem that is shown for a hostile value. While the value is decoded, the event loop's
    thread must not compute for half a second without a pause, and afterwards the workers must do the next task.
    """
    registry = FakeRegistry(id7=schema) if schema else FakeRegistry()
    reader = ValueReader(workers, as_registry(registry))
    longest = 0.0

    async def beat() -> None:
        nonlocal longest
        while True:
            before = time.thread_time()
            await asyncio.sleep(0.01)
            longest = max(longest, time.thread_time() - before)

    beating = asyncio.create_task(beat())
    try:
        read = await read_one(reader, value, **how)
        told = "nothing" if read is None else read.problem or str(read.text)
    except TaskFailed as failed:
        told = str(failed)
    beating.cancel()
    assert longest < 0.5
    again = await ValueReader(workers).read("orders", [b'{"n": 1}'], ReadAs.AUTOMATIC, expression="$.n")
    assert again[0].matches
    return told


@pytest.mark.parametrize("nesting", [b"[", b'{"a":', b"[{},"])
async def test_ten_megabytes_of_nested_json_hold_up_nothing(workers: Workers, nesting: bytes) -> None:
    value = nesting * (10 * MEGABYTE // len(nesting))
    assert "nothing" in await hostile_result(workers, value, expression="$..a..a")


async def test_a_deep_list_of_avro_unions_is_a_problem(workers: Workers) -> None:
    told = await hostile_result(workers, framed(7, b"\x02" * MEGABYTE), Schema(LIST))
    assert "not of the Avro schema" in told


async def test_a_deep_and_a_cut_protobuf_message_are_problems(workers: Workers) -> None:
    schema = Schema(node_schema(), "PROTOBUF")
    for payload in (nested_protobuf(20_000), b"\x12\xff\xff\xff\xff\x07"):
        assert "are not a message" in await hostile_result(workers, framed(7, b"\0" + payload), schema)


async def test_message_pack_that_claims_to_be_huge_is_a_problem(workers: Workers) -> None:
    for value in (b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\x91" * 100_000, b"\xc6\xff\xff\xff\xff"):
        assert "is not MessagePack" in await hostile_result(workers, value, read_as=ReadAs.MESSAGE_PACK)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        json.dumps({"type": "array", "items": "null"}),
        '{"type":"record","name":"A","fields":[' + '{"name":"a","type":' * 2000 + '"int"' + "}" * 2000 + "]}",
        "no schema",
        "7",
    ],
)
async def test_a_schema_that_cannot_be_used_is_a_problem(workers: Workers, text: str) -> None:
    told = await hostile_result(workers, framed(7, b"\xfe\xff\xff\xff\x0f\x00"), Schema(text))
    assert "schema" in told


async def test_a_password_of_a_registry_is_in_no_message(workers: Workers) -> None:
    registry = SchemaRegistry("http://robot:hunter2@127.0.0.1:1,http://127.0.0.1:1")
    read = await read_one(ValueReader(workers, registry), framed(7, AVRO_VALUE))
    await registry.close()
    assert read is not None
    assert "127.0.0.1:1/schemas/ids/7" in str(read.problem)
    assert "hunter2" not in str(read.problem)


# --- hostile registries


Answer = Callable[[asyncio.StreamWriter], Any]


@asynccontextmanager
async def registry_that(answers: Answer) -> AsyncIterator[SchemaRegistry]:
    """A real HTTP registry that always sends this one response."""

    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            await answers(writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(served, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with SchemaRegistry(f"http://127.0.0.1:{port}", timeout_s=1.0) as registry:
        yield registry
    server.close()


async def huge(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n{")
    for _ in range(64):
        writer.write(b" " * MEGABYTE)
        await writer.drain()


async def silent(writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(3)


async def no_json(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 15\r\nConnection: close\r\n\r\n<html>hi</html>")


async def deep(writer: asyncio.StreamWriter) -> None:
    body = b'{"schema":' + b"[" * 500_000
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(body) + body)


async def elsewhere(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/secret\r\nContent-Length: 0\r\n\r\n")


async def no_http(writer: asyncio.StreamWriter) -> None:
    writer.write(b"\xff" * 1000)


@pytest.mark.parametrize("answers", [huge, silent, no_json, deep, elsewhere, no_http])
async def test_a_hostile_registry_is_a_problem_of_the_value(workers: Workers, answers: Answer) -> None:
    async with registry_that(answers) as registry:
        read = await read_one(ValueReader(workers, registry), framed(7, AVRO_VALUE))
    assert read is not None
    assert read.text is None
    assert read.kind == "schema 7"
    assert read.problem
