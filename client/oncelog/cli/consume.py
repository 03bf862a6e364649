"""`oncelog consume`: prints the records of topics or partitions."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Final

import click

from oncelog.cli.json_records import format_json
from oncelog.cli.offsets import AtTime, Earliest, Latest, Position, out_of_range, parse_position, resolve
from oncelog.cli.options import KEY_VALUE, Parsed, bootstrap_option, client_settings
from oncelog.cli.running import run
from oncelog.cli.text_records import Template, escaped_bytes, line_template

if TYPE_CHECKING:
    from oncelog.cluster import TopicPartition
    from oncelog.consumer.consumer import Consumer
    from oncelog.consumer.records import ConsumerRecord

Render = Callable[["ConsumerRecord"], bytes]

POLL_MS: Final = 100
"""How long to wait for records before looking again whether the end is reached: it may be a marker, no record."""


def parse_target(text: str) -> tuple[str, int | None]:
    """`topic` or `topic:partition`; None stands for all partitions. Raises ValueError."""
    topic, separator, partition = text.rpartition(":")
    if not separator:
        return text, None
    if not topic or not partition.isascii() or not partition.isdigit():
        raise ValueError(f"{text!r} is neither TOPIC nor TOPIC:PARTITION")
    return topic, int(partition)


def _parse_position_now(text: str) -> Position:
    from oncelog.clock import now_ms

    return parse_position(text, now_ms())


POSITION: Final = Parsed("POSITION", _parse_position_now)
TARGET: Final = Parsed("TOPIC[:PARTITION]", parse_target)
BYTES: Final = Parsed("TEXT", escaped_bytes)


@dataclass(frozen=True, slots=True)
class Range:
    """What to read of each partition: [start, end) and at most `count` records of all together.

    `end` None: what is there at the start, unless `is_following`. `count` None: no limit.
    """

    start: Position
    end: Position | None
    count: int | None
    is_following: bool


@click.command()
@click.argument("targets", type=TARGET, nargs=-1, required=True, metavar="TOPIC[:PARTITION]...")
@bootstrap_option
@click.option("--from", "start", type=POSITION, help="Where to start. Default: earliest.")
@click.option("--to", "end", type=POSITION, help="Where to stop, that offset or time excluded. Default: today's end.")
@click.option("--count", "-n", type=click.IntRange(min=1), help="Stop after this many records.")
@click.option("--follow", "-f", "is_following", is_flag=True, help="Go on with what comes, until Ctrl-C.")
@click.option("--key-separator", metavar="TEXT", help=r"Print the key too, and this between it and the value.")
@click.option("--timestamps", is_flag=True, help="Print timestamps before, and a tab.")
@click.option("--offsets", is_flag=True, help="Print TOPIC:PARTITION:OFFSET before, and a tab.")
@click.option("--headers", is_flag=True, help="Print headers before, as a=1,b=2, and a tab.")
@click.option("--null-value", type=BYTES, default="null", show_default=True, metavar="TEXT", help="What null prints as.")
@click.option("--format", "template", help=r"Print this instead, such as '{timestamp} {key}={value}\n', see below.")
@click.option("--json", "is_json", is_flag=True, help="Lines of JSON, which `oncelog produce --json` reads.")
@click.option("--base64", is_flag=True, help="With --json: always base64. Default: only what is not UTF-8.")
@click.option("-D", "settings", type=KEY_VALUE, multiple=True, help="Any setting of the consumer.")
def consume(
    targets: tuple[tuple[str, int | None], ...],
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
    base64: bool,
    settings: tuple[tuple[str, str], ...],
) -> None:
    r"""Print the records of topics, or of single partitions.

    Values are printed byte for byte with a newline after each. Reading ends at the records that were there when the
    command started, unless told to --follow. Records of one partition come in their order.

    \b
    A POSITION, for --from and --to, is one of
      earliest, latest   the ends of the partition
      17                 an offset
      -5                 the last five (of each partition)
      5m                 five minutes ago (ms, s, m, h, d, w)
      2026-01-31T10:00   a time, UTC unless it names a zone
      @1767225600000     a time in milliseconds since 1970

    \b
    Fields of --format: topic, partition, offset, timestamp, timestamp_ms, key, value, headers; escapes \n \t \0 \xHH.

    \b
      oncelog consume greetings --from -10 --follow
      oncelog consume orders:2 --from 1h --json
    """
    flags = key_separator is not None or timestamps or offsets or headers
    if sum((flags, template is not None, is_json)) > 1:
        raise click.UsageError("--format, --json, and the flags for columns exclude each other")
    if base64 and not is_json:
        raise click.UsageError("--base64 is a choice of --json")
    if is_following and end is not None:
        raise click.UsageError("--follow has no end: leave out --to")
    if is_json:
        render: Render = lambda record: format_json(record, base64=base64)  # noqa: E731
    else:
        columns = {"timestamps": timestamps, "offsets": offsets, "headers": headers}
        try:
            render = Template(template or line_template(**columns, key_separator=key_separator), null_value).render
        except ValueError as error:
            raise click.UsageError(str(error)) from error
    wanted = Range(start or Earliest(), end, count, is_following)
    options = {"auto_offset_reset": "earliest", "allow_auto_create_topics": False, **client_settings(settings)}

    async def command() -> None:
        from oncelog.consumer.consumer import Consumer

        async with Consumer(bootstrap, **options) as consumer:
            ends = await _assign(consumer, targets, wanted)
            await _print_records(consumer, ends, wanted, render, sys.stdout.buffer)

    run(command, bootstrap)
