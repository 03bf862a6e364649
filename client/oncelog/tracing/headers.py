"""The headers of records as what carries the context of a trace (W3C Trace Context, in Kafka's headers as UTF-8)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from oncelog_protocol.records.batch import Buffer
from oncelog_protocol.records.builder import HeaderSequence

MAX_CONTEXT_BYTES: Final = 8_192
"""What a header of a context may have: as W3C Baggage bounds it. A longer one is nobody's context."""


class TracedHeaders(list[tuple[str, Buffer | None]]):
    """Headers of a record that has its span already."""


class TracedColumn(list[HeaderSequence]):
    """Headers of records that have their span already."""


def context_headers(headers: HeaderSequence, fields: Collection[str]) -> dict[str, str]:
    """What `headers` say of a context whose names are `fields`: of each name the last one, as Kafka's clients read it.

    Whatever others have written: what is no text, or too long, is left out.
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
    """`headers`, to be looked at more than once. Raises TypeError for what cannot be headers of a record."""
    try:
        seen = list(headers)
        if all(isinstance(name, str) for name, _ in seen):
            return seen
    except (TypeError, ValueError):
        pass
    raise TypeError("headers: must be a sequence of (name, value) pairs, where the name is str")


def with_context(headers: HeaderSequence, context: Mapping[str, str]) -> TracedHeaders:
    """`headers`, and behind them those of `context` that the application has not set itself. Raises TypeError."""
    if not headers:
        return TracedHeaders([(name, value.encode()) for name, value in context.items()])
    given = checked(headers)
    own = {name for name, _ in given}
    return TracedHeaders([*given, *((name, value.encode()) for name, value in context.items() if name not in own)])


def column_with_context(
    headers: Sequence[HeaderSequence] | None, count: int, context: Mapping[str, str]
) -> TracedColumn:
    """As `with_context` for each of `count` records; a column of another length stays as it is, to be refused."""
    if headers is None:
        return TracedColumn([with_context((), context)] * count)
    if len(headers) != count:
        return TracedColumn(headers)
    return TracedColumn([with_context(row, context) for row in headers])
