"""`oncelog consume`: prints the records of topics or partitions."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import click

from oncelog.cli.json_records import as_json, format_json
from oncelog.cli.offsets import AtTime, Earliest, Latest, Position, out_of_range, parse_position, resolve
from oncelog.cli.options import KEY_VALUE, bootstrap_option, client_settings, parsed
from oncelog.cli.output import tell
from oncelog.cli.running import run
from oncelog.cli.targets import TARGET, Target, partitions_of
from oncelog.cli.text_records import OutputRecord, Template, escaped_bytes, line_template
from oncelog.cli.value_formats import READ, Formats, format_options, formats_of
from oncelog.escaping import visible_bytes

if TYPE_CHECKING:
    from oncelog.cli.value_codecs import Decoder
    from oncelog.cluster import TopicPartition
    from oncelog.consumer.consumer import Consumer

Render = Callable[[OutputRecord], bytes]

POLL_MS: Final = 100
"""Milliseconds to wait for records before checking again whether the end is reached. The check is needed because a
marker at the end yields no record.
"""


def _parse_position_now(text: str) -> Position:
    from oncelog.clock import now_ms

    return parse_position(text, now_ms())


POSITION: Final = parsed("POSITION", _parse_position_now)
BYTES: Final = parsed("TEXT", escaped_bytes)


@dataclass(frozen=True, slots=True)
class Range:
    """The range to read in each partition: [start, end), and at most `count` records in total. `end` None means the end
    offset at the start of the command; with `is_following`, None means no end. `count` None means no limit.
    """

    start: Position
    end: Position | None
    count: int | None
    is_following: bool


@click.command()
@click.argument("targets", type=TARGET, nargs=-1, required=True, metavar="TOPIC[:PARTITION]...")
@bootstrap_option
@click.option("--from", "start", type=POSITION, help="Where to start. Default: earliest.")
@click.option("--to", "end", type=POSITION, help="Where to stop (exclusive). Default: the end at the start.")
@click.option("--count", "-n", type=click.IntRange(min=1), help="Stop after this many records.")
@click.option("--follow", "-f", "is_following", is_flag=True, help="Keep reading new records, until Ctrl-C.")
@click.option("--key-separator", metavar="TEXT", help=r"Print the key too, and this between it and the value.")
@click.option("--timestamps", is_flag=True, help="Print timestamps before, and a tab.")
@click.option("--offsets", is_flag=True, help="Print TOPIC:PARTITION:OFFSET before, and a tab.")
@click.option("--headers", is_flag=True, help="Print headers before, as a=1,b=2, and a tab.")
@click.option(
    "--null-value",
    type=BYTES,
    default="null",
    show_default=True,
    metavar="TEXT",
    help="The text that is printed for null.",
)
@click.option("--format", "template", help=r"Print this instead, such as '{timestamp} {key}={value}\n', see below.")
@click.option("--json", "is_json", is_flag=True, help="Lines of JSON, which `oncelog produce --json` reads.")
@click.option("--output", "-o", type=click.Choice(["plain", "json", "yaml"]), help="json is --json. Default: plain.")
@click.option("--base64", is_flag=True, help="With --json: always base64. Default: only for values that are not UTF-8.")
@format_options(READ)
@click.option(
    "--invalid",
    type=click.Choice(["fail", "bytes"]),
    default="fail",
    show_default=True,
    help="What to do with keys and values that are not of their format: end, or print them as they are.",
)
@click.option("-D", "settings", type=KEY_VALUE, multiple=True, help="Any setting of the consumer.")
def consume(
    targets: tuple[Target, ...],
    bootstrap: str,
    start: Position | None,
    end: Position | None,
    count: int | None,
    is_following: bool,
    key_separator: str | None,
    timestamps: bool,
    offsets: bool,
    headers: bool,
    null_value: bytes,
    template: str | None,
    is_json: bool,
    output: str | None,
    base64: bool,
    key_format: str,
    value_format: str,
    registry: str | None,
    key_schema: Path | None,
    value_schema: Path | None,
    message: str | None,
    invalid: str,
    settings: tuple[tuple[str, str], ...],
) -> None:
    """Print the records of topics, or of single partitions.

    Values are printed byte for byte with a newline after each; on a terminal, control characters in keys and headers
    are escaped (\\x1b). Reading ends at the last record that existed when the command started, unless --follow is
    given. Records of one partition are printed in their order.

    \b
    A POSITION, for --from and --to, is one of
      earliest, latest   the ends of the partition
      17                 an offset
      -5                 the last five (of each partition)
      5m                 five minutes ago (ms, s, m, h, d, w)
      2026-01-31T10:00   a time, UTC unless it names a zone
      @1767225600000     a time in milliseconds since 1970

    Fields of --format: topic, partition, offset, timestamp, timestamp_ms, key, value, headers;
    escapes \\n \\t \\0 \\xHH.

    --value and --key name the format of values and keys: bytes, json, msgpack, numbers as Java's serializers write them
    (short, integer, long, float, double), or a format with a schema (avro, json-schema, protobuf). Formats other than
    bytes are printed as JSON.
    With --registry, the id of the schema precedes each key or value (the format `registry` accepts any type of schema);
    with --value-schema, values use the schema in a file.

    \b
      oncelog consume greetings --from -10 --follow
      oncelog consume orders:2 --from 1h --json
      oncelog consume orders --value avro --registry http://127.0.0.1:8081
    """
    formats = formats_of(key_format, value_format, registry, key_schema, value_schema, message)
    is_json = is_json or output == "json"
    flags = key_separator is not None or timestamps or offsets or headers
    if sum((flags, template is not None, is_json, output == "yaml")) > 1:
        raise click.UsageError("--format, --json, --output yaml, and the flags for columns exclude each other")
    if base64 and not is_json and output != "yaml":
        raise click.UsageError("--base64 is a choice of --json")
    if is_following and end is not None:
        raise click.UsageError("--follow has no end: leave out --to")
    if is_json:
        render: Render = lambda record: format_json(record, base64=base64)  # noqa: E731
    elif output == "yaml":
        render = lambda record: _as_yaml(record, base64=base64)  # noqa: E731
    else:
        columns = {"timestamps": timestamps, "offsets": offsets, "headers": headers}
        try:
            line = template or line_template(**columns, key_separator=key_separator)
            render = Template(line, null_value, visible_bytes if sys.stdout.isatty() else bytes).render
        except ValueError as error:
            raise click.UsageError(str(error)) from error
    wanted = Range(start or Earliest(), end, count, is_following)
    options = {"auto_offset_reset": "earliest", "allow_auto_create_topics": False, **client_settings(settings)}
    run(lambda: _consume(bootstrap, targets, wanted, render, formats, invalid == "bytes", options), bootstrap)


async def _consume(
    bootstrap: str,
    targets: Sequence[Target],
    wanted: Range,
    render: Render,
    formats: Formats,
    raw_if_invalid: bool,
    options: dict[str, Any],
) -> None:
    """Read and print the records. Raises KafkaError, BrokenPipeError, and UsageError for a missing partition."""
    from oncelog.consumer.consumer import Consumer

    async with Consumer(bootstrap, **options) as consumer, AsyncExitStack() as stack:
        decoder: Decoder | None = None
        if not formats.is_plain:
            from oncelog.cli.value_codecs import opened_decoder

            decoder = await stack.enter_async_context(
                opened_decoder(formats, raw_if_invalid=raw_if_invalid, complain=lambda what: tell(f"oncelog: {what}"))
            )
        partitions = await _partitions(bootstrap, targets, options)
        ends = await _seek(consumer, partitions, wanted)
        await _print_records(consumer, ends, wanted, render, decoder, sys.stdout.buffer)


def _as_yaml(record: OutputRecord, *, base64: bool) -> bytes:
    """Return a record as a YAML document with the fields of --json."""
    import yaml

    text: str = yaml.safe_dump(as_json(record, base64=base64), sort_keys=False, allow_unicode=False, width=120)
    return f"---\n{text}".encode()


async def _partitions(bootstrap: str, targets: Sequence[Target], options: dict[str, Any]) -> list[TopicPartition]:
    """Return the partitions that the arguments name, without duplicates. Raises KafkaError, UsageError."""
    from dataclasses import fields

    from oncelog.admin import Admin
    from oncelog.config import ClientConfig

    common = {field.name for field in fields(ClientConfig)} & options.keys()
    async with Admin(bootstrap, **{key: options[key] for key in common}) as admin:
        return await partitions_of(admin, targets)


async def _seek(
    consumer: Consumer, partitions: Sequence[TopicPartition], wanted: Range
) -> dict[TopicPartition, int | None]:
    """Assign the partitions and seek to their starts. Returns the end offset of each partition, None for a partition
    that is followed.
    """
    beginnings = await consumer.beginning_offsets(partitions)
    log_ends = await consumer.end_offsets(partitions)

    async def offsets(position: Position) -> dict[TopicPartition, int]:
        found: Mapping[TopicPartition, Any] = {}
        if isinstance(position, AtTime):
            found = await consumer.offsets_for_times(dict.fromkeys(partitions, max(0, position.timestamp_ms)))
        resolved = {}
        for partition in partitions:
            beginning, end, answer = beginnings[partition], log_ends[partition], found.get(partition)
            if warning := out_of_range(position, beginning=beginning, end=end):
                tell(f"oncelog: {partition}: {warning}")
            offset = None if answer is None else answer.offset
            resolved[partition] = resolve(position, beginning=beginning, end=end, found=offset)
        return resolved

    starts = await offsets(wanted.start)
    ends: dict[TopicPartition, int | None] = dict.fromkeys(partitions)
    if not wanted.is_following:
        ends.update(await offsets(wanted.end or Latest()))
    consumer.assign(partitions)
    for partition, offset in starts.items():
        consumer.seek(partition, offset)
    return ends


async def _print_records(
    consumer: Consumer,
    ends: dict[TopicPartition, int | None],
    wanted: Range,
    render: Render,
    decoder: Decoder | None,
    output: BinaryIO,
) -> None:
    """Print records until every partition is at its end, or the wanted number is reached. Raises KafkaError, for
    example SerializationError, and BrokenPipeError.
    """
    left = wanted.count
    while await _drop_finished(consumer, ends):
        for partition, records in (await consumer.poll(POLL_MS, left)).items():
            end = ends[partition]
            if end is not None and records[-1].offset >= end:
                records = [record for record in records if record.offset < end]
            if decoder is None:
                output.write(b"".join(map(render, records)))
            else:
                for record in records:
                    output.write(render(await decoder.record(record)))
            if left is not None:
                left -= len(records)
        output.flush()
        if left == 0:
            return


async def _drop_finished(consumer: Consumer, ends: dict[TopicPartition, int | None]) -> bool:
    """Stop reading partitions that are at their end. Returns whether any partition is left. The consumer's position
    decides whether the end is reached, because markers or gaps of compacted records may follow the last record.
    """
    finished = [
        partition for partition, end in ends.items() if end is not None and await consumer.position(partition) >= end
    ]
    if finished:
        for partition in finished:
            del ends[partition]
        consumer.assign(ends)
    return bool(ends)
