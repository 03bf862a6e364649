"""`oncelog produce`: turns lines of standard input, or of a file, into records."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from oncelog.cli.json_records import parse_json
from oncelog.cli.options import KEY_VALUE, bootstrap_option, client_settings, parsed
from oncelog.cli.output import tell
from oncelog.cli.running import Failure, describe, run
from oncelog.cli.text_records import InputRecord, Lines, escaped_bytes, parse_header, parse_line
from oncelog.cli.value_formats import BYTES as BYTES_FORMAT
from oncelog.cli.value_formats import WRITTEN, Formats, format_options, formats_of

if TYPE_CHECKING:
    import asyncio

    from oncelog.cli.value_codecs import Encoder
    from oncelog.producer.record_metadata import RecordMetadata

ParseLine = Callable[[bytes], InputRecord]

BYTES: Final = parsed("TEXT", escaped_bytes)
HEADER: Final = parsed("NAME=VALUE", parse_header)
REPORT_EVERY: Final = 1000
"""Number of records between two updates of the progress line."""


@click.command()
@click.argument("topic")
@bootstrap_option
@click.option("--file", "path", type=click.Path(exists=True, dir_okay=False), help="Read this, not standard input.")
@click.option(
    "--key-separator",
    type=BYTES,
    metavar="TEXT",
    help=r"The separator between key and value (\t, \xHH). Default: no keys.",
)
@click.option("--null-value", type=BYTES, metavar="TEXT", help="A value equal to this text becomes null, a tombstone.")
@click.option("--header", "headers", type=HEADER, multiple=True, help="A header for every record. May be repeated.")
@click.option("--json", "is_json", is_flag=True, help="Lines of JSON, see below.")
@format_options(WRITTEN)
@click.option("--partition", type=click.IntRange(min=0), help="Default: by the key, or spread.")
@click.option("--compression", type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]), help="Default: none.")
@click.option("--acks", type=click.Choice(["all", "1", "0"]), help="Which acknowledgements to wait for. Default: all.")
@click.option("-D", "settings", type=KEY_VALUE, multiple=True, help="A setting of the producer, such as linger.ms=50.")
@click.option("--quiet", "-q", is_flag=True, help="Do not say how many records were acknowledged.")
def produce(
    topic: str,
    bootstrap: str,
    path: str | None,
    key_separator: bytes | None,
    null_value: bytes | None,
    headers: tuple[tuple[str, bytes], ...],
    is_json: bool,
    key_format: str,
    value_format: str,
    registry: str | None,
    key_schema: Path | None,
    value_schema: Path | None,
    message: str | None,
    partition: int | None,
    compression: str | None,
    acks: str | None,
    settings: tuple[tuple[str, str], ...],
    quiet: bool,
) -> None:
    """Send each line of standard input to TOPIC as a record.

    A line ends at a newline; all other bytes are sent as they are. The first failure ends the command with exit code 1,
    after all earlier records have been acknowledged or have failed.

    With --json a line is an object whose fields are all optional (`oncelog consume --json` prints the same format):

    \b
      {"key": "k", "value": "v", "headers": [["name", "value"]],
       "partition": 0, "timestamp": 1767225600000, "encoding": "utf-8"}

    With "encoding": "base64", key, value and header values are base64.

    With --value or --key of a format other than bytes, values or keys are JSON, both in plain lines and with --json.
    The formats are numbers as Java's serializers write them, msgpack, and formats with a schema (avro, json-schema,
    protobuf). With --registry, values use the latest schema of the subject TOPIC-value, and keys that of TOPIC-key. If
    --value-schema names a file, its schema is registered and used instead. Without a registry, only the schema in the
    file is used.

    \b
      echo hello | oncelog produce greetings
      oncelog produce orders --key-separator : --compression zstd --file orders.txt
      echo '{"id": 7}' | oncelog produce orders --value avro --registry http://127.0.0.1:8081
    """
    formats = formats_of(key_format, value_format, registry, key_schema, value_schema, message)
    json_fields = {name for name, each in (("key", formats.key), ("value", formats.value)) if each.name != BYTES_FORMAT}
    if is_json and (key_separator is not None or null_value is not None):
        raise click.UsageError("--key-separator and --null-value are for lines of text, JSON has its own")

    def parse(line: bytes) -> InputRecord:
        if is_json:
            record = parse_json(line, json_fields)
        else:
            record = parse_line(line, key_separator=key_separator, null_value=null_value)
        record.headers.extend(headers)
        if record.partition is None:
            record.partition = partition
        return record

    options = client_settings(settings)
    if compression is not None:
        options["compression_type"] = compression
    if acks is not None:
        options["acks"] = acks
    tally = run(lambda: _produce(topic, bootstrap, path, parse, formats, options), bootstrap)
    if tally.error is not None:
        raise Failure(f"{tally.error}; {tally.summary()}")
    if not quiet:
        tell(tally.summary())


@dataclass(slots=True)
class Tally:
    """Counts of the records that were sent and that were acknowledged. `error` is the first failure, with the number of
    the input line if a line caused the failure.
    """

    sent: int = 0
    acknowledged: int = 0
    error: str | None = None
    is_acknowledging: bool = True
    """False with acks=0: "acknowledged" then means only that the record was written to the network."""

    def summary(self) -> str:
        records = "record" if self.sent == 1 else "records"
        if not self.is_acknowledging:
            return f"{self.acknowledged} of {self.sent} {records} sent, without acknowledgement (acks=0)"
        return f"{self.acknowledged} of {self.sent} {records} acknowledged"


async def _produce(
    topic: str, bootstrap: str, path: str | None, parse: ParseLine, formats: Formats, options: dict[str, Any]
) -> Tally:
    """Send the records. Raises KafkaError if the cluster cannot be reached; other failures are stored in the tally."""
    from oncelog.errors import KafkaError
    from oncelog.producer.producer import Producer

    async with Producer(bootstrap, **options) as producer, AsyncExitStack() as stack:
        encoder: Encoder | None = None
        if not formats.is_plain:
            from oncelog.cli.value_codecs import opened_encoder

            encoder = await stack.enter_async_context(opened_encoder(formats, topic))
        tally = Tally(is_acknowledging=producer.config.required_acks != 0)

        def settled(future: asyncio.Future[RecordMetadata]) -> None:
            error = future.exception()
            if error is None:
                tally.acknowledged += 1
            elif tally.error is None:
                tally.error = describe(error, bootstrap) if isinstance(error, KafkaError) else str(error)

        with _opened(path) as source, _Progress(tally) as progress:
            number = 0
            try:
                async for lines in _lines(source.fileno()):
                    for line in lines:
                        number += 1
                        record = parse(line)
                        if encoder is not None:
                            record = await encoder.record(record)
                        future = await producer.send(
                            topic,
                            record.value,
                            key=record.key,
                            headers=record.headers,
                            partition=record.partition,
                            timestamp_ms=record.timestamp_ms,
                        )
                        tally.sent += 1
                        future.add_done_callback(settled)
                    progress.update()
                    if tally.error is not None:
                        break
            except ValueError as error:
                tally.error = tally.error or f"line {number}: {error}"
            except KafkaError as error:
                tally.error = tally.error or f"line {number}: {describe(error, bootstrap)}"
            except OSError as error:
                tally.error = tally.error or f"cannot read {path or 'standard input'}: {error.strerror or error}"
            await producer.flush()
    return tally


def _opened(path: str | None) -> Any:
    return nullcontext(sys.stdin) if path is None else closing(open(path, "rb", buffering=0))


async def _lines(descriptor: int) -> AsyncIterator[Sequence[bytes]]:
    """Yield the lines of a file, chunk by chunk as they are completed. Raises OSError, ValueError for an endless
    line."""
    from oncelog.cli.standard_input import chunks

    lines = Lines()
    async for chunk in chunks(descriptor):
        yield lines.feed(chunk)
    yield lines.finish()


class _Progress:
    """A progress line on standard error, shown if standard error is a terminal and the records are not typed on that
    terminal.
    """

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._shown = 0
        self._status: Any = None

    def __enter__(self) -> _Progress:
        if sys.stderr.isatty() and not sys.stdin.isatty():
            from rich.console import Console

            self._status = Console(stderr=True).status("sending")
            self._status.start()
        return self

    def update(self) -> None:
        if self._status is not None and self._tally.sent - self._shown >= REPORT_EVERY:
            self._shown = self._tally.sent
            self._status.update(self._tally.summary())

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()
