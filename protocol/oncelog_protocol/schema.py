"""Declares each message once, over all its versions.

    @message(api_key=0, versions="3-13", flexible="9+") class ProduceRequest(Request["ProduceResponse"]):
    transactional_id: str | None = string("3+", nullable="3+", default=None) acks: int = int16() topic_data:
    list[TopicProduceData] = array()

        @struct class TopicProduceData: ...

The class becomes a slotted dataclass with keyword arguments; its annotations are for people and type checkers, and its
field functions (`string`, `array` and so on) describe the wire format. A field without `default` must be given to the
constructor. A field that a version does not have is skipped when encoding and gets its default when decoding, so code
above the codec sees the same fields in all versions.

All names are Kafka's: the names of fields are converted to snake_case, and the names of structs are unchanged.
`schema_of` returns the declaration as data (tests compare it with Kafka's own definitions), and `codec.codec` encodes
and decodes the bytes.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar, dataclass_transform

from oncelog_protocol.light_classes import dataclass, light_dataclass
from oncelog_protocol.uuids import ZERO_UUID as ZERO_UUID
from oncelog_protocol.versions import NO_VERSIONS, VersionRange, version_range
from oncelog_protocol.wire_writers import Buffer

T = TypeVar("T")
R = TypeVar("R")

Records = Buffer | None
"""The type of a field with record data, which are unchanged record batches. Record data are decoded as a memoryview of
the frame, and encoded without a copy.
"""

OWN_TAGS: Final = 10_000
"""Tagged fields with this tag number or a higher one are oncelog's own. Kafka numbers its tags from 0 up, and a reader
skips unknown tags (KIP-482), so oncelog may add its own tagged fields to any flexible message. oncelog's clients do not
depend on these fields.
"""

_MISSING: Final = dataclasses.MISSING


class Request(Generic[R]):
    """Base class of a request; R is the type of its response, so that `await connection.send(request)` is typed."""

    __slots__ = ()


@dataclass(slots=True)
class FieldSchema:
    """The declaration of one field; `type_name` is Kafka's type name ("int32", "string", "array", "struct", ...).

    `element` is the declaration of an array's element, and `struct` the class of a struct (also of an array's element).
    `flexible` is None if the field follows its message; otherwise it is the range of versions in which this field's
    length is compact, whatever the rest of the message.
    """

    name: str
    type_name: str
    versions: VersionRange
    nullable: VersionRange
    tag: int | None
    tagged: VersionRange
    flexible: VersionRange | None
    default: Any
    has_default: bool
    element: FieldSchema | None = None
    struct: type | None = None


@dataclass(slots=True, frozen=True)
class MessageSchema:
    """The declaration of one message; `flexible` is the range of versions with compact lengths and tagged fields
    (KIP-482).
    """

    name: str
    api_key: int | None
    versions: VersionRange
    flexible: VersionRange
    fields: tuple[FieldSchema, ...]


# --- field functions -------------------------------------------------------------------------------------------------


def _field(
    type_name: str,
    versions: str,
    *,
    default: Any = _MISSING,
    default_factory: Any = _MISSING,
    nullable: str | None = None,
    tag: int | None = None,
    tagged: str | None = None,
    flexible: str | None = "message",
    of: Any = None,
) -> Any:
    spec = FieldSchema(
        name="",
        type_name=type_name,
        versions=version_range(versions),
        nullable=version_range(nullable),
        tag=tag,
        tagged=version_range(tagged) if tagged else (version_range(versions) if tag is not None else NO_VERSIONS),
        flexible=None if flexible == "message" else version_range(flexible),
        default=default
        if default is not _MISSING
        else (default_factory() if default_factory is not _MISSING else None),
        has_default=default is not _MISSING or default_factory is not _MISSING,
    )
    if isinstance(of, type):
        spec.struct = of
    elif of is not None:
        spec.element = of.metadata["wire"]
    return dataclasses.field(default=default, default_factory=default_factory, metadata={"wire": spec})


def boolean(versions: str = "0+", *, default: Any = _MISSING, tag: int | None = None, tagged: str | None = None) -> Any:
    return _field("boolean", versions, default=default, tag=tag, tagged=tagged)


def int8(versions: str = "0+", *, default: Any = _MISSING, tag: int | None = None, tagged: str | None = None) -> Any:
    return _field("int8", versions, default=default, tag=tag, tagged=tagged)


def int16(versions: str = "0+", *, default: Any = _MISSING, tag: int | None = None, tagged: str | None = None) -> Any:
    return _field("int16", versions, default=default, tag=tag, tagged=tagged)


def uint16(versions: str = "0+", *, default: Any = _MISSING, tag: int | None = None, tagged: str | None = None) -> Any:
    return _field("uint16", versions, default=default, tag=tag, tagged=tagged)


def int32(versions: str = "0+", *, default: Any = _MISSING, tag: int | None = None, tagged: str | None = None) -> Any:
    return _field("int32", versions, default=default, tag=tag, tagged=tagged)


def uint32(versions: str = "0+", *, default: Any = _MISSING, tag: int | None = None, tagged: str | None = None) -> Any:
    return _field("uint32", versions, default=default, tag=tag, tagged=tagged)


def int64(versions: str = "0+", *, default: Any = _MISSING, tag: int | None = None, tagged: str | None = None) -> Any:
    return _field("int64", versions, default=default, tag=tag, tagged=tagged)


def float64(versions: str = "0+", *, default: Any = _MISSING, tag: int | None = None, tagged: str | None = None) -> Any:
    return _field("float64", versions, default=default, tag=tag, tagged=tagged)


def uuid(versions: str = "0+", *, default: Any = _MISSING, tag: int | None = None, tagged: str | None = None) -> Any:
    """Declare a field of 16 raw bytes; `oncelog_protocol.uuids` converts to the text form."""
    return _field("uuid", versions, default=default, tag=tag, tagged=tagged)


def string(
    versions: str = "0+",
    *,
    default: Any = _MISSING,
    nullable: str | None = None,
    tag: int | None = None,
    tagged: str | None = None,
    flexible: str | None = "message",
) -> Any:
    """Declare a string; with `flexible=None`, the length of the string is not compact in any version, as in the request
    header's client_id.
    """
    return _field("string", versions, default=default, nullable=nullable, tag=tag, tagged=tagged, flexible=flexible)


def bytes_(
    versions: str = "0+",
    *,
    default: Any = _MISSING,
    nullable: str | None = None,
    tag: int | None = None,
    tagged: str | None = None,
) -> Any:
    """Declare a field that is decoded as `bytes`, which are copied from the frame."""
    return _field("bytes", versions, default=default, nullable=nullable, tag=tag, tagged=tagged)


def records(
    versions: str = "0+",
    *,
    default: Any = _MISSING,
    nullable: str | None = None,
    tag: int | None = None,
    tagged: str | None = None,
) -> Any:
    """Declare record batches, annotated `Records`; they are decoded as a memoryview of the frame."""
    return _field("records", versions, default=default, nullable=nullable, tag=tag, tagged=tagged)


def array(
    versions: str = "0+",
    *,
    of: Any = None,
    default: Any = _MISSING,
    default_factory: Any = _MISSING,
    nullable: str | None = None,
    tag: int | None = None,
    tagged: str | None = None,
) -> Any:
    """Declare a list. Declare a list. Its elements are of the struct that the annotation names, or of the type that
    `of` gives, such as `of=int32()`.
    """
    return _field(
        "array",
        versions,
        of=of,
        default=default,
        default_factory=default_factory,
        nullable=nullable,
        tag=tag,
        tagged=tagged,
    )


def nested(
    versions: str = "0+",
    *,
    default: Any = _MISSING,
    nullable: str | None = None,
    tag: int | None = None,
    tagged: str | None = None,
) -> Any:
    """Declare one struct, which the annotation names. A tagged struct has `default=None`; if its value is None, the
    tagged field is not sent.
    """
    return _field("struct", versions, default=default, nullable=nullable, tag=tag, tagged=tagged)


# --- class decorators ------------------------------------------------------------------------------------------------


@dataclass_transform(
    kw_only_default=True,
    field_specifiers=(
        boolean,
        int8,
        int16,
        uint16,
        int32,
        uint32,
        int64,
        float64,
        uuid,
        string,
        bytes_,
        records,
        array,
        nested,
    ),
)
def struct(cls: type[T]) -> type[T]:
    """Declare a part of a message: a slotted dataclass whose fields are declared by the functions above."""
    # All message classes share methods that `dataclass` would otherwise generate for each class; this halves the import
    # time.
    cls.__eq__ = _are_equal  # type: ignore[method-assign]
    cls.__hash__ = None  # type: ignore[assignment]
    cls.__repr__ = _shown  # type: ignore[method-assign]
    if cls.__doc__ is None:
        cls.__doc__ = cls.__name__
    made: type[T] = light_dataclass(slots=True, kw_only=True, eq=False, repr=False)(cls)
    return made


def _are_equal(self: Any, other: object) -> Any:
    if type(self) is not type(other):
        return NotImplemented
    return _values(self) == _values(other)


def _values(of: Any) -> list[Any]:
    return [getattr(of, field.name) for field in dataclasses.fields(of)]


def _shown(self: Any) -> str:
    shown = ", ".join(f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self))
    return f"{type(self).__qualname__}({shown})"


@dataclass_transform(
    kw_only_default=True,
    field_specifiers=(
        boolean,
        int8,
        int16,
        uint16,
        int32,
        uint32,
        int64,
        float64,
        uuid,
        string,
        bytes_,
        records,
        array,
        nested,
    ),
)
def message(*, versions: str, flexible: str | None, api_key: int | None = None) -> Callable[[type[T]], type[T]]:
    """Declare a request, a response, a header, or a record of an internal topic.

    `versions` is the range of declared versions; `flexible` is the range of versions with compact lengths and tagged
    fields.
    """

    def declare(cls: type[T]) -> type[T]:
        declared = struct(cls)
        declared.__message__ = (api_key, version_range(versions), version_range(flexible))  # type: ignore[attr-defined]
        return declared

    return declare


# --- declarations as data --------------------------------------------------------------------------------------------


def schema_of(cls: type) -> MessageSchema:
    """Return the declaration of a message class. Raises TypeError for any other class."""
    try:
        api_key, versions, flexible = cls.__message__  # type: ignore[attr-defined]
    except AttributeError:
        raise TypeError(f"{cls.__name__} is not declared with @message") from None
    return MessageSchema(cls.__name__, api_key, versions, flexible, fields_of(cls))


def fields_of(cls: type) -> tuple[FieldSchema, ...]:
    """Return the declared fields of a message or struct class, in the order of the wire."""
    cached: tuple[FieldSchema, ...] | None = cls.__dict__.get("__wire_fields__")
    if cached is None:
        cached = tuple(_named(cls, field) for field in dataclasses.fields(cls))
        cls.__wire_fields__ = cached  # type: ignore[attr-defined]
    return cached


def _named(cls: type, field: dataclasses.Field[Any]) -> FieldSchema:
    spec: FieldSchema | None = field.metadata.get("wire")
    if spec is None:
        raise TypeError(f"{cls.__qualname__}.{field.name} has no wire type: declare it with int32(), string(), ...")
    spec.name = field.name
    if spec.struct is None and (spec.type_name == "struct" or (spec.type_name == "array" and spec.element is None)):
        spec.struct = _struct_in_annotation(cls, field)
    if spec.type_name == "array" and spec.struct is not None:
        element = dataclasses.replace(spec, type_name="struct", nullable=NO_VERSIONS, tag=None, tagged=NO_VERSIONS)
        spec.element = element
    return spec


def _struct_in_annotation(cls: type, field: dataclasses.Field[Any]) -> type:
    """Return the class that an annotation such as "list[Topic] | None" names; the class is nested in `cls` or defined
    in its module.
    """
    for name in re.findall(r"\w+", str(field.type)):
        found = cls.__dict__.get(name) or getattr(sys.modules[cls.__module__], name, None)
        if isinstance(found, type) and dataclasses.is_dataclass(found):
            return found
    raise TypeError(f"{cls.__qualname__}.{field.name}: no struct named in its annotation {field.type!r}")
