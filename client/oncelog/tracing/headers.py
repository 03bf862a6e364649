"""Trace context in record headers (W3C Trace Context, in Kafka headers as UTF-8)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from oncelog_protocol.records.batch import Buffer
from oncelog_protocol.records.builder import HeaderSequence

MAX_CONTEXT_BYTES: Final = 8_192
"""Maximum bytes of a context header, as for W3C Baggage. Longer context headers are ignored."""


class TracedHeaders(list[tuple[str, Buffer | None]]):
    """The headers of a record to which a span's context was already added."""


class TracedColumn(list[HeaderSequence]):
    """The headers column of records to which a span's context was already added."""


def context_headers(headers: HeaderSequence, fields: Collection[str]) -> dict[str, str]:
    """Return the context fields in `headers`; if a name occurs several times, the last header counts, as in Kafka's
    clients. Headers that are not text, or too long, are ignored.
    """
    found: dict[str, str] = {}
    for name, value in headers:
        if name in fields and value is not None and len(value) <= MAX_CONTEXT_BYTES:
            try:
                found[name] = str(value, "utf-8")
            except UnicodeDecodeError:
                continue
    return found


def checked(headers: HeaderSequence) -> HeaderSequence:
    """Return `headers` in a form that can be iterated repeatedly. Raises TypeError for invalid headers."""
    try:
        seen = list(headers)
        if all(isinstance(name, str) for name, _ in seen):
            return seen
    except (TypeError, ValueError):
        pass
    raise TypeError("headers: must be a sequence of (name, value) pairs, where the name is str")


def with_context(headers: HeaderSequence, context: Mapping[str, str]) -> TracedHeaders:
    """Return `headers`, followed by the fields of `context` that the application has not set itself. Raises
    TypeError."""
    if not headers:
        return TracedHeaders([(name, value.encode()) for name, value in context.items()])
    given = checked(headers)
    own = {name for name, _ in given}
    return TracedHeaders([*given, *((name, value.encode()) for name, value in context.items() if name not in own)])


def column_with_context(
    headers: Sequence[HeaderSequence] | None, count: int, context: Mapping[str, str]
) -> TracedColumn:
    """Return the result of `with_context` for each of `count` records; a headers column of another length is returned
    unchanged, and the producer refuses it later.
    """
    if headers is None:
        return TracedColumn([with_context((), context)] * count)
    if len(headers) != count:
        return TracedColumn(headers)
    return TracedColumn([with_context(row, context) for row in headers])
