"""Makes one unexpected change to a request built from its declaration.

A twist is a function that gets the request and its places (the fields of all its structs), changes one place, and
returns a description; None if the request has no suitable place. The twists do not depend on an API; `guards` names
fields whose values must not become so large that the broker works or waits too long.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from fuzz import odd_batches
from fuzz.encoder import Encoder, Raw, Repeated, length, sized, tag_section, uvarint
from oncelog_protocol.schema import FieldSchema, fields_of

INTEGERS = {
    "int8": (0, 1, -1, 2, 127, -128),
    "int16": (0, 1, -1, 32767, 32766, -32768),
    "uint16": (0, 65535),
    "int32": (0, 1, -1, -2, 30_000, 2**31 - 1, -(2**31)),
    "uint32": (0, 2**32 - 1),
    "int64": (0, 1, -1, -2, -3, 2**62, 2**63 - 1, -(2**63)),
    "float64": (0.0, -1.0, float("inf"), float("-inf"), float("nan")),
    "boolean": (False, True),
}
STRINGS = (
    None,
    "",
    " ",
    ".",
    "..",
    "../../x",
    "a/b",
    "a\0b",
    "line\n",
    "-1",
    "9" * 30,
    "é" * 100,
    "\U0001f600",
    "\ud800",
    "x" * 249,
    "x" * 250,
    "x" * 32_767,
    "(a|a)*b",
    "(" * 500,
    "__transaction_state",
    "__cluster_metadata",
)
BYTES = (None, b"", b"\0", b"\xff" * 20, bytes(100_000))
UUIDS = (bytes(16), b"\xff" * 16, bytes(15) + b"\1")
COUNTS = (100, 2000, 10_000, 30_000, 49_000, 60_000)
MAX_ARRAY_BYTES = 4 << 20
MARK = b"<the number of the element>"
SAID_COUNTS = (-1, -2, -(2**31), 2**31 - 1, 2**24, 100_000, 7)
WAITING = ("max_wait_ms", "rebalance_timeout_ms")
"""Fields with which a client itself requests a late response; if their values are large, the fuzzer does not wait for
the response.
"""
LARGE_WAIT_MS = 1000
MAX_PARTITIONS = 20
"""The maximum number of partitions in a request: a topic may have ten thousand partitions, but their creation is not
tested here.
"""


@dataclass
class Place:
    """A place in a request where a twist can change a value: a field of a struct."""

    owner: Any
    field: FieldSchema

    @property
    def value(self) -> Any:
        return getattr(self.owner, self.field.name)

    @value.setter
    def value(self, value: Any) -> None:
        setattr(self.owner, self.field.name, value)

    def __str__(self) -> str:
        return f"{type(self.owner).__name__}.{self.field.name}"


@dataclass
class Twisted:
    """A request before it is sent; `tags` maps struct objects to their encoded tagged fields, and `header_tags` are the
    tagged fields of the header.
    """

    request: Any
    encoder: Encoder
    rng: random.Random
    places: list[Place] = field(default_factory=list)
    structs: list[Any] = field(default_factory=list)
    tags: dict[int, bytes] = field(default_factory=dict)
    header_tags: bytes = b"\x00"
    client_id: str | None = "fuzz"
    is_awaited: bool = True
    is_grown: bool = False
    """Whether a twist has already made an array of the request long; no second array may be made long."""

    def __post_init__(self) -> None:
        self._walk(self.request)
        self.encoder.tags = self.tags

    def _walk(self, struct: Any) -> None:
        self.structs.append(struct)
        for declared in fields_of(type(struct)):
            if self.encoder.version not in declared.versions:
                continue
            self.places.append(Place(struct, declared))
            for nested in _structs_in(declared, getattr(struct, declared.name)):
                self._walk(nested)

    def place(self, *kinds: str) -> Place | None:
        """Return a random field whose type is one of these, or None if the request has no such field."""
        found = [place for place in self.places if place.field.type_name in kinds]
        return self.rng.choice(found) if found else None

    def array(self) -> Place | None:
        found = [place for place in self.places if isinstance(place.value, list) and place.value]
        return self.rng.choice(found) if found else None

    @property
    def is_flexible(self) -> bool:
        return self.encoder.version in self.encoder.flexible


def _structs_in(declared: FieldSchema, value: Any) -> Iterator[Any]:
    if declared.struct is not None and value is not None:
        yield from value if isinstance(value, list) else (value,)


def extreme(twisted: Twisted) -> str | None:
    place = twisted.place(*INTEGERS, "string", "bytes", "uuid")
    if place is None:
        return None
    kind = place.field.type_name
    options = {"string": STRINGS, "bytes": BYTES, "uuid": UUIDS}.get(kind) or INTEGERS[kind]
    place.value = guarded(twisted, place, twisted.rng.choice(options))
    return f"{place} = {str(place.value)[:40]!r}"


def guarded(twisted: Twisted, place: Place, value: Any) -> Any:
    """Limit the value of a field that makes a request expensive, or do not wait for the response."""
    name = place.field.name
    if name in WAITING and isinstance(value, int) and value > LARGE_WAIT_MS:
        twisted.is_awaited = False
        for other in twisted.places:
            if other.field.name == "group_id":  # other members would wait for this member until the timeout
                other.value = f"alone-{twisted.rng.randrange(1 << 30)}"
    if name in ("num_partitions", "count") and isinstance(value, int) and MAX_PARTITIONS < value < 2**31 - 1:
        return MAX_PARTITIONS
    return value


def odd_records(twisted: Twisted) -> str | None:
    place = twisted.place("records")
    if place is None:
        return None
    place.value = odd_batches.odd(twisted.rng)
    return f"{place} is odd"


def repeated(twisted: Twisted) -> str | None:
    """Repeat the same element of an array many times."""
    place = twisted.array()
    if place is None:
        return None
    _validate_only(twisted)
    element = twisted.rng.choice(place.value)
    count = _count_for(twisted, place, element)
    place.value = Repeated(element, count)
    return f"{place}: one element {count} times"


def numbered(twisted: Twisted) -> str | None:
    """Fill an array with many different elements."""
    place = twisted.array()
    if place is None:
        return None
    _validate_only(twisted)
    count = _count_for(twisted, place, place.value[0])
    place.value = _numbered(twisted, place, count)
    return f"{place}: {count} elements"


def _count_for(twisted: Twisted, place: Place, element: Any) -> int:
    """Return how many elements fit into a frame that the broker does not refuse for its size alone."""
    twisted.is_grown = True
    size = len(twisted.encoder.element(place.field, element))
    return min(twisted.rng.choice(COUNTS), MAX_ARRAY_BYTES // max(1, size))


def _numbered(twisted: Twisted, place: Place, count: int) -> Raw:
    """Encode the element once, and vary only a number in the encoding: the element itself, or its first field that can
    contain one.
    """
    encoder, element, declared = twisted.encoder, place.value[0], place.field.element
    assert declared is not None
    before = after = b""
    if declared.struct is not None:
        numbered = next((field for field in fields_of(declared.struct) if _can_be_numbered(field, encoder)), None)
        element = copy.copy(element)
        if numbered is None:
            encoded = encoder.element(place.field, element)
            return Raw(length(count, twisted.is_flexible) + encoded * count)
        setattr(element, numbered.name, Raw(MARK))
        before, after = encoder.element(place.field, element).split(MARK, 1)
        declared = numbered
    numbers = (before + _number(declared.type_name, number, twisted.is_flexible) + after for number in range(count))
    return Raw(length(count, twisted.is_flexible) + b"".join(numbers))


def _can_be_numbered(field: FieldSchema, encoder: Encoder) -> bool:
    is_sent = encoder.version in field.versions and encoder.version not in field.tagged
    return is_sent and field.type_name in ("string", "int32", "int64", "uuid")


def _number(kind: str, number: int, is_compact: bool) -> bytes:
    if kind == "string":
        return sized(f"numbered-{number}", None if is_compact else ">h")
    return number.to_bytes({"int32": 4, "int64": 8, "uuid": 16}[kind], "big")


def _validate_only(twisted: Twisted) -> None:
    """Only validate the request, because creating thousands of topics is slow, and allowed."""
    for place in twisted.places:
        if place.field.name == "validate_only":
            place.value = True


def duplicated(twisted: Twisted) -> str | None:
    """Duplicate an element of an array, unchanged or with another value beside its name."""
    place = twisted.array()
    if place is None:
        return None
    element = twisted.rng.choice(place.value)
    place.value = [*place.value, element]
    return f"{place}: one element twice"


def emptied(twisted: Twisted) -> str | None:
    place = twisted.place("array", "struct")
    if place is None:
        return None
    if place.field.type_name == "array":
        place.value = twisted.rng.choice((None, []))
        return f"{place} = {place.value}"
    place.value = Raw(twisted.rng.choice((b"\xff", b"\x00", b"")))
    return f"{place} = {place.value}"


def false_count(twisted: Twisted) -> str | None:
    """Give an array, a string or bytes a wrong length."""
    place = twisted.place("array", "string", "bytes", "records")
    if place is None:
        return None
    said = twisted.rng.choice(SAID_COUNTS)
    if isinstance(place.value, list) and place.value:
        place.value = Repeated(place.value[0], len(place.value), said)
        return f"{place} says {said} elements"
    size_format = None if twisted.is_flexible else ">i"
    place.value = Raw(length(said, size_format is None) + sized("x", None)[1:])
    return f"{place} says {said}"


def unknown_tags(twisted: Twisted) -> str | None:
    """Add unknown tagged fields: few or many, sorted or not, duplicated, or with a wrong length."""
    if not twisted.is_flexible:
        return None
    rng = twisted.rng
    kind, section = rng.choice(TAG_SECTIONS)
    if rng.random() < 0.3:
        twisted.header_tags = section
        return f"header: {kind} tags"
    struct = rng.choice(twisted.structs)
    twisted.tags[id(struct)] = section
    return f"{type(struct).__name__}: {kind} tags"


TAG_SECTIONS = (
    ("few", tag_section([(100, b"x"), (10_000, b""), (2**31 - 1, bytes(100))])),
    ("all the low", tag_section([(tag, bytes(8)) for tag in range(10)])),
    ("empty low", tag_section([(tag, b"") for tag in range(4)])),
    ("many", uvarint(30_000) + b"\x05\x00" * 30_000),
    ("many ascending", tag_section([(tag, b"") for tag in range(100, 30_100)])),
    ("unordered", tag_section([(200, b"x"), (100, b"x")])),
    ("doubled", tag_section([(100, b"x"), (100, b"x")])),
    ("overlong", uvarint(1) + uvarint(100) + uvarint(1 << 30)),
    ("falsely counted", uvarint(2**32 - 1) + b"\x05\x00"),
    ("too long a number of", uvarint(2**40) + b"\x05\x00"),
)


def client_id(twisted: Twisted) -> str | None:
    twisted.client_id = twisted.rng.choice((None, "", "x" * 32_767, "é", "\0"))
    return f"client id = {str(twisted.client_id)[:20]!r}"


def untouched(twisted: Twisted) -> str | None:
    return "as it should be"


Twist = Callable[[Twisted], str | None]
WEIGHTED: tuple[tuple[Twist, int], ...] = (
    (untouched, 10),
    (extreme, 45),
    (duplicated, 12),
    (odd_records, 8),
    (unknown_tags, 8),
    (emptied, 6),
    (false_count, 6),
    (repeated, 6),
    (numbered, 2),
    (client_id, 1),
)
TWISTS = [twist for twist, _ in WEIGHTED]
WEIGHTS = [weight for _, weight in WEIGHTED]
