"""Records as lines of text: the default input of `produce` and output of `consume`. The functions are pure and work on
bytes.

A line ends only at the byte 10, and bytes are not decoded to text, so all bytes except the newline pass through
unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from string import Formatter
from typing import Any, Final, Protocol

from oncelog.cli.offsets import format_timestamp

Headers = Sequence[tuple[str, bytes | None]]

MAX_LINE_BYTES: Final = 100 * 1024 * 1024
"""Maximum bytes of a line: a longer line could not be sent (socket.request.max.bytes), and the limit keeps input
without a newline from filling the memory.
"""

_ESCAPE: Final = re.compile(r"\\(x[0-9a-fA-F]{2}|.?)", re.DOTALL)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}


@dataclass(slots=True)
class InputRecord:
    """A record to produce. `key` and `value` are bytes or None. If the format of the key or value accepts JSON, the
    field holds a JSON value until `value_codecs` has encoded it. `timestamp_ms` None means the current time.
    `partition` None means that the partitioner chooses the partition.
    """

    key: Any
    value: Any
    headers: list[tuple[str, bytes | None]] = field(default_factory=list)
    partition: int | None = None
    timestamp_ms: int | None = None


class OutputRecord(Protocol):
    """A record to print, with those fields of a ConsumerRecord that `consume` can print."""

    @property
    def topic(self) -> str: ...

    @property
    def partition(self) -> int: ...

    @property
    def offset(self) -> int: ...

    @property
    def timestamp_ms(self) -> int: ...

    @property
    def key(self) -> bytes | None: ...

    @property
    def value(self) -> bytes | None: ...

    @property
    def headers(self) -> Headers: ...


class Lines:
    """Cuts a stream of chunks into lines; stores at most one unfinished line."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that `chunk` completes, without their newlines. Raises ValueError if a line is too long."""
        *lines, rest = chunk.split(b"\n")
        if lines:
            lines[0] = bytes(self._rest) + lines[0]
            self._rest = bytearray(rest)
        else:
            self._rest += rest
        if len(self._rest) > MAX_LINE_BYTES:
            raise ValueError(f"a line is longer than {MAX_LINE_BYTES} bytes")
        return lines

    def finish(self) -> list[bytes]:
        """Return the last line if the input did not end with a newline."""
        return [bytes(self._rest)] if self._rest else []


def parse_line(line: bytes, *, key_separator: bytes | None, null_value: bytes | None) -> InputRecord:
    """Parse one line: key and value if the line contains the separator (split at the first separator), otherwise
    only a value. Raises ValueError if the separator is missing from the line."""
    key: bytes | None = None
    value: bytes | None = line
    if key_separator is not None:
        key, found, value = line.partition(key_separator)
        if not found:
            raise ValueError(f"no key separator {unescaped(key_separator)!r} in {shortened(line)}")
    return InputRecord(key, None if null_value is not None and value == null_value else value)


def parse_header(text: str) -> tuple[str, bytes]:
    """Parse a header in the form `name=value`. Raises ValueError."""
    name, separator, value = text.partition("=")
    if not separator:
        raise ValueError(f"a header is NAME=VALUE, not {text!r}")
    return name, value.encode(errors="surrogateescape")


def escaped_bytes(text: str) -> bytes:
    r"""Return the text of an option as bytes, with the escapes \n \t \r \0 \\ \xHH replaced. Raises ValueError for any
    other escape.
    """
    parts: list[bytes] = []
    position = 0
    for match in _ESCAPE.finditer(text):
        parts.append(text[position : match.start()].encode(errors="surrogateescape"))
        escape = match[1]
        if len(escape) == 3:
            parts.append(bytes([int(escape[1:], 16)]))
        elif escape in _ESCAPES:
            parts.append(_ESCAPES[escape].encode())
        else:
            raise ValueError(rf"unknown escape {match[0]!r}: known escapes: \n \t \r \0 \\ \xHH")
        position = match.end()
    parts.append(text[position:].encode(errors="surrogateescape"))
    return b"".join(parts)


def unescaped(data: bytes) -> str:
    """Return `data` for use in a message: as text if the bytes are valid text."""
    return data.decode(errors="backslashreplace")


def shortened(line: bytes, limit: int = 60) -> str:
    """Return the beginning of `line` for a message."""
    return repr(unescaped(line[:limit])) + ("..." if len(line) > limit else "")


Renderer = Callable[[OutputRecord], bytes]


class Template:
    """Turns records into bytes by a template such as `{timestamp} {key}={value}`; keys and values pass unchanged.

    The fields are topic, partition, offset, timestamp (ISO, UTC), timestamp_ms, key, value, headers (`a=1,b=2`). `{{`
    produces a brace. The template is the entire output; not even a newline is added. `shows` turns the bytes of keys
    and headers into printable bytes. On a terminal `shows` is `visible_bytes`; elsewhere it returns the bytes
    unchanged. Values are never changed.
    """

    FIELDS: Final = ("topic", "partition", "offset", "timestamp", "timestamp_ms", "key", "value", "headers")

    def __init__(self, template: str, null_value: bytes, shows: Callable[[bytes], bytes] = bytes) -> None:
        """Parse the template. Raises ValueError for a field that does not exist, and for unbalanced braces."""
        self._null = null_value
        self._shows = shows
        self._parts: list[bytes | Renderer] = []
        renderers = self._renderers()
        for literal, name, spec, conversion in Formatter().parse(template):
            if literal:
                self._parts.append(escaped_bytes(literal))
            if name is None:
                continue
            if name not in renderers or spec or conversion:
                raise ValueError(f"unknown field {{{name}}}; known fields: {', '.join(self.FIELDS)}")
            self._parts.append(renderers[name])

    def render(self, record: OutputRecord) -> bytes:
        return b"".join(part if isinstance(part, bytes) else part(record) for part in self._parts)

    def _renderers(self) -> dict[str, Renderer]:
        renderers: dict[str, Renderer] = {
            "topic": lambda record: self._shows(record.topic.encode()),
            "partition": lambda record: b"%d" % record.partition,
            "offset": lambda record: b"%d" % record.offset,
            "timestamp": lambda record: format_timestamp(record.timestamp_ms).encode(),
            "timestamp_ms": lambda record: b"%d" % record.timestamp_ms,
            "key": lambda record: self._shown(record.key),
            "value": lambda record: self._or_null(record.value),
            "headers": lambda record: b",".join(
                self._shows(name.encode()) + b"=" + self._shown(value) for name, value in record.headers
            ),
        }
        assert tuple(renderers) == self.FIELDS
        return renderers

    def _shown(self, data: bytes | None) -> bytes:
        return self._null if data is None else self._shows(data)

    def _or_null(self, data: bytes | None) -> bytes:
        return self._null if data is None else data


def line_template(*, timestamps: bool, offsets: bool, headers: bool, key_separator: str | None) -> str:
    """Return the template for the flags of `consume`: the requested columns, each followed by a tab, and then the key
    and the value.
    """
    columns = [
        *(["{timestamp}"] if timestamps else []),
        *(["{topic}:{partition}:{offset}"] if offsets else []),
        *(["{headers}"] if headers else []),
    ]
    key = "" if key_separator is None else "{key}" + key_separator.replace("{", "{{").replace("}", "}}")
    return "".join(column + r"\t" for column in columns) + key + "{value}" + r"\n"
