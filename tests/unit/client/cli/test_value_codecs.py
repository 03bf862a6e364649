"""The formats of `consume` and `produce`: contradictory options are refused, and values are decoded by a schema from a
file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from oncelog.cli.group import cli
from oncelog.cli.text_records import InputRecord
from oncelog.cli.value_codecs import opened_decoder, opened_encoder
from oncelog.cli.value_formats import BYTES, Formats, formats_of
from oncelog.consumer.records import ConsumerRecord
from oncelog.serialization import SerializationError

ORDER = '{"type":"record","name":"Order","fields":[{"name":"id","type":"int"},{"name":"raw","type":"bytes"}]}'


def record(key: bytes | None, value: bytes | None) -> ConsumerRecord:
    return ConsumerRecord("orders", 0, 17, 0, 0, key, value, (), 0)


def formats(key: str = BYTES, value: str = BYTES, schema: Path | None = None) -> Formats:
    return formats_of(key, value, None, None, schema, None)


async def decoded(chosen: Formats, one: ConsumerRecord, *, raw_if_invalid: bool = False) -> tuple[Any, list[str]]:
    complaints: list[str] = []
    async with opened_decoder(chosen, raw_if_invalid=raw_if_invalid, complain=complaints.append) as decoder:
        return await decoder.record(one), complaints


@pytest.mark.parametrize(
    ("command", "options", "message"),
    [
        ("consume", ["--value", "avro"], "--value avro needs --registry or --value-schema"),
        ("consume", ["--key", "registry"], "--key registry needs --registry"),
        ("consume", ["--value", "json", "--value-schema", __file__], "--value-schema is for --value avro"),
        ("consume", ["--message", "a.Order"], "--message is for --value protobuf"),
        ("consume", ["--json", "--output", "yaml"], "exclude each other"),
        ("produce", ["--value", "registry"], "'registry' is not one of"),
        ("produce", ["--key", "protobuf"], "--key protobuf needs --registry or --key-schema"),
    ],
)
def test_options_that_are_not_enough_or_too_many_are_refused(command: str, options: list[str], message: str) -> None:
    result = CliRunner().invoke(cli, [command, "t", *options], env={"ONCELOG_REGISTRY": ""})
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())


async def test_records_are_written_and_printed_by_a_schema_in_a_file(tmp_path: Path) -> None:
    schema = tmp_path / "order.avsc"
    schema.write_text(ORDER)
    chosen = formats("long", "avro", schema)
    async with opened_encoder(chosen, "orders") as encoder:
        made = await encoder.record(InputRecord(b"5", b'{"id":7,"raw":"base64:/w=="}'))
    assert (made.key, made.value) == (b"\0\0\0\0\0\0\0\5", b"\x0e\x02\xff")
    shown, _ = await decoded(chosen, record(made.key, made.value))
    assert (shown.key, shown.value) == (b"5", b'{"id":7,"raw":"base64:/w=="}')
    assert shown.decoded == {"key": 5, "value": {"id": 7, "raw": "base64:/w=="}}


async def test_null_stays_null_in_every_format() -> None:
    async with opened_encoder(formats("json", "msgpack"), "orders") as encoder:
        made = await encoder.record(InputRecord(None, None))
    assert (made.key, made.value) == (None, None)
    shown, _ = await decoded(formats("json", "msgpack"), record(None, None))
    assert (shown.key, shown.value, shown.decoded) == (None, None, {})


async def test_a_value_of_a_wrong_format_ends_the_command_or_passes_unchanged() -> None:
    with pytest.raises(SerializationError, match=r"orders:0, offset 17: the value: .*--invalid bytes"):
        await decoded(formats(value="json"), record(b"k", b"\xff"))
    shown, complaints = await decoded(formats(value="json"), record(b"k", b"\xff"), raw_if_invalid=True)
    assert (shown.value, shown.decoded) == (b"\xff", {})
    assert "orders:0, offset 17: the value" in complaints[0]


async def test_a_line_that_is_no_json_is_refused() -> None:
    async with opened_encoder(formats(value="json"), "orders") as encoder:
        with pytest.raises(ValueError, match="takes JSON"):
            await encoder.record(InputRecord(None, b"{"))
