"""Tables of the kinds of records in `__consumer_offsets`, for decoding and encoding records. Pure.

Each group protocol (consumer, share, streams) has its own table of record kinds. The version of a record's key is the
number of the record's kind. The value of a record has a version, too. An unknown version of the value is an error,
because a value that is decoded wrongly could lose the group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from oncelog_broker.coordinator.effects import Encoded
from oncelog_protocol.coordinator_records.versioned import decode_versioned, encode_versioned
from oncelog_protocol.light_classes import NamedTuple

VALUE_VERSION: Final = 0


def value_itself(record: Any) -> Any:
    """Returns the value message of a record whose value is stored unchanged."""
    return record.value


class Kind(NamedTuple):
    """One kind of record: `number` is the version of the key, `key` and `value` are the messages, `record` the type of
    the record in memory. `made(key, value)` creates the record from the key message and the value message; `key_of` and
    `value_of` create the messages from a record. A record value of None is a tombstone.
    """

    number: int
    record: type[Any]
    key: type[Any]
    value: type[Any]
    made: Callable[[Any, Any], Any]
    key_of: Callable[[Any], Any]
    value_of: Callable[[Any], Any] = value_itself


def group_kind(number: int, record: type[Any], key: type[Any], value: type[Any]) -> Kind:
    """Return a kind of record whose key is a group; the record in memory has the group id and the value message."""
    return Kind(
        number,
        record,
        key,
        value,
        lambda k, v: record(k.group_id, v),
        lambda made: key(group_id=made.group_id),
    )


def member_kind(
    number: int,
    record: type[Any],
    key: type[Any],
    value: type[Any],
    made: Callable[[str, str, Any], Any] | None = None,
    value_of: Callable[[Any], Any] = value_itself,
) -> Kind:
    """Return a kind of record whose key is a member of a group; the record in memory has group id, member id and the
    value message.
    """
    make = record if made is None else made
    return Kind(
        number,
        record,
        key,
        value,
        lambda k, v: make(k.group_id, k.member_id, v),
        lambda one: key(group_id=one.group_id, member_id=one.member_id),
        value_of,
    )


class Kinds:
    """The table of record kinds of one group protocol."""

    __slots__ = ("_by_number", "_by_type")

    def __init__(self, kinds: Iterable[Kind]) -> None:
        self._by_type = {kind.record: kind for kind in kinds}
        self._by_number = {kind.number: kind for kind in self._by_type.values()}

    @property
    def messages(self) -> dict[int, tuple[type[Any], type[Any]]]:
        """Number of the kind -> the message classes of key and value."""
        return {number: (kind.key, kind.value) for number, kind in self._by_number.items()}

    def has(self, record: object) -> bool:
        """Whether the type of the record is in this table."""
        return type(record) in self._by_type

    def encode(self, record: Any) -> Encoded:
        """Return the bytes (key and value) of a record. Raises UnencodableMessage for values that the record's schema
        cannot represent.
        """
        kind = self._by_type[type(record)]
        value = kind.value_of(record)
        return Encoded(
            encode_versioned(kind.key_of(record), kind.number),
            None if value is None else encode_versioned(value, VALUE_VERSION),
        )

    def decode(self, number: int, key: bytes, value: bytes | None) -> Any | None:
        """Decode a record whose key has the version `number`; returns None if this table has no such kind. Raises
        MalformedMessage if the record cannot be decoded or its value has an unknown version.
        """
        kind = self._by_number.get(number)
        if kind is None:
            return None
        return kind.made(
            decode_versioned(kind.key, key), None if value is None else decode_versioned(kind.value, value)
        )
