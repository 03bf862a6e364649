"""Tests how the console shows, searches and saves Avro, Protobuf and MessagePack values, with a live broker and
registry.
"""

from __future__ import annotations

import csv
import html
import io
import json
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgpack
import pytest
import pytest_asyncio
from broker_process import BrokerProcess
from console_browser import Browser, as_text, opened

from oncelog import Producer
from oncelog.serialization import AvroSerializer, ProtobufJsonSerializer, Schema, SchemaRegistry, SerializationContext
from oncelog_console.values.reader import SchemaFile
from oncelog_testing.registry import Registry

ORDER = """{"type":"record","name":"shop.Order","fields":[{"name":"id","type":"int"},
 {"name":"price","type":{"type":"bytes","logicalType":"decimal","precision":9,"scale":2}},
 {"name":"who","type":["null","string"]}]}"""


@pytest.fixture(scope="module")
def url(broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with Registry(broker.address, tmp_path_factory.mktemp("registry") / "log") as registry:
        yield registry.url


@pytest_asyncio.fixture
async def registry(url: str) -> AsyncIterator[SchemaRegistry]:
    async with SchemaRegistry(url) as registry:
        yield registry


@pytest_asyncio.fixture
async def browser(broker: BrokerProcess, url: str) -> AsyncIterator[Browser]:
    async with opened(broker.address, registry_at=url) as made:
        yield made


async def write_orders(address: str, registry: SchemaRegistry, topic: str) -> None:
    from decimal import Decimal

    context = SerializationContext(topic)
    of_values = AvroSerializer[Any](registry, ORDER)
    of_keys = AvroSerializer[Any](registry, '"string"', subject=lambda *_: f"{topic}-key")
    async with Producer(address) as producer:
        for n in range(4):
            value = {"id": n, "price": Decimal(n) / 4, "who": None if n % 2 else f"<b>{n}</b>"}
            key = await of_keys.serialize(f"key-{n}", context)
            await producer.send(topic, await of_values.serialize(value, context), key=key)
        await producer.send(topic, b'{"id": 3}', key=b"plain")
        await producer.flush()


async def test_avro_is_shown_searched_and_saved(
    browser: Browser, registry: SchemaRegistry, broker: BrokerProcess, topic: str
) -> None:
    await write_orders(broker.address, registry, topic)
    text = await browser.text("/records", topic=topic)
    assert re.search(r'"key-2" \{"id": 2, "price": "0\.50", "who": "<b>2</b>"\} Avro, schema \d+', text), text
    assert 'plain {"id": 3}' in text
    assert "<b>2</b>" not in await browser.page("/records", topic=topic)
    found = await browser.text("/records", topic=topic, value="$.id == 3")
    assert "2 records with this search among 5" in found
    whole = await browser.page("/record", topic=topic, partition=0, offset=1)
    assert '"price": "0.25",\n' in html.unescape(whole)
    assert "Its bytes" in whole
    raw = await browser.text("/record", topic=topic, partition=0, offset=1, read="bytes")
    assert "binary" in raw
    page = await browser.page("/records", topic=topic, value="$.who")
    links = [html.unescape(each) for each in re.findall(r'href="(/download[^"]+)"', page)]
    lines, sheet = [await browser.client.get(each) for each in links]
    assert [json.loads(each)["value"]["id"] for each in lines.text.splitlines()] == [0, 1, 2, 3]
    rows = list(csv.DictReader(io.StringIO(sheet.text)))
    assert [json.loads(row["value"])["price"] for row in rows] == ["0.00", "0.25", "0.50", "0.75"]
    assert rows[0]["key"] == '"key-0"'


async def test_protobuf_is_shown_by_the_registry_and_by_a_file(
    browser: Browser, registry: SchemaRegistry, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    from base64 import b64encode

    from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet

    file = FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    order = file.message_type.add(name="Order")
    label = FieldDescriptorProto.LABEL_OPTIONAL
    order.field.add(name="id", number=1, type=FieldDescriptorProto.TYPE_INT32, label=label)
    schema = Schema(b64encode(file.SerializeToString()).decode(), "PROTOBUF")
    serializer = ProtobufJsonSerializer(registry, schema)
    context = SerializationContext(topic)
    codec = await serializer.codec(context)
    async with Producer(broker.address) as producer:
        framed = await serializer.serialize(codec.from_json({"id": 7}), context)
        await producer.send(topic, framed)
        await producer.send(topic, b"\x08\x09")
        await producer.flush()
    assert re.search(r'\{"id": 7\} Protobuf, schema \d+', await browser.text("/records", topic=topic))
    path = tmp_path / "order.desc"
    path.write_bytes(FileDescriptorSet(file=[file]).SerializeToString())
    async with opened(broker.address, schema_files={topic: SchemaFile(path, "shop.Order")}) as by_file:
        text = await by_file.text("/records", topic=topic)
        assert '{"id": 9} by order.desc' in text
        assert "by order.desc: " in text, "the other value begins with the id of a schema, and is told as a problem"


async def test_message_pack_is_shown_where_it_is_chosen(browser: Browser, broker: BrokerProcess, topic: str) -> None:
    async with Producer(broker.address) as producer:
        await producer.send(topic, msgpack.packb({"id": 7, "raw": b"\xff"}))
        await producer.flush()
    assert '{"id": 7' not in await browser.text("/records", topic=topic)
    assert '{"id": 7, "raw": "base64:/w=="} MessagePack' in await browser.text("/records", topic=topic, read="msgpack")
    page = await browser.page("/record", topic=topic, partition=0, offset=0)
    (link,) = re.findall(r'href="([^"]+)">Read it as MessagePack', page)
    assert '"id": 7' in as_text(await browser.page(html.unescape(link)))
    assert "values are read as one of" in await browser.text("/records", 400, topic=topic, read="cbor")


async def test_a_registry_that_is_away_is_told_beside_the_value(
    registry: SchemaRegistry, broker: BrokerProcess, topic: str
) -> None:
    await write_orders(broker.address, registry, topic)
    async with opened(broker.address, registry_at="http://127.0.0.1:1") as browser:
        text = await browser.text("/records", topic=topic)
        assert re.search(r"schema \d+: http://127.0.0.1:1/", text)
        assert 'plain {"id": 3}' in text
