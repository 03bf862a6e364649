"""Readers of one wire value. Each reader takes a buffer, a position and the end, and returns the value and the position
after it.

Every reader compares a length with the remaining bytes *before* it slices or allocates, and raises MalformedMessage if
bytes are missing. (Reads of fixed size raise struct.error or IndexError instead, which `codec` converts.) Compact
lengths are n + 1, with 0 for null (KIP-482, T13).
"""

from __future__ import annotations

from struct import Struct
from typing import Any, Final

from oncelog_protocol.errors import MalformedMessage, TooManyElements

MAX_ELEMENTS: Final = 4_000_000
"""Maximum number of array elements and tagged fields in one message. Without this limit, a frame of one-byte elements
could become gigabytes of objects, and the decoding of a frame with two-byte tagged fields could take minutes.
"""
MAX_TAGS: Final = 1000
"""Maximum number of tagged fields in one struct, known or unknown; the limit is far above the number of tagged fields
of any struct in Kafka.
"""
MAX_STRING_BYTES: Final = 0x7FFF

INT16: Final = Struct(">h")
INT32: Final = Struct(">i")


def read_uvarint(buffer: memoryview, position: int) -> tuple[int, int]:
    """Read an unsigned varint of at most 5 bytes and 32 bits; raises IndexError at the end of the buffer."""
    byte = buffer[position]
    position += 1
    if byte < 0x80:
        return byte, position
    value = byte & 0x7F
    for shift in (7, 14, 21, 28):
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                break
            return value, position
    raise MalformedMessage("unsigned varint of more than 32 bits")


def _too_long(size: int, position: int, end: int) -> MalformedMessage:
    return MalformedMessage(f"length {size} at byte {position}, but only {end - position} bytes remain")


def _is_null(position: int) -> MalformedMessage:
    return MalformedMessage(f"null before byte {position}, where null is not allowed")


# The readers of compact values read a one-byte length inline, because nearly all lengths have one byte; calling
# read_uvarint for each length would cost a fifth of the decoding time of a small request.


def read_nullable_string(buffer: memoryview, position: int, end: int) -> tuple[str | None, int]:
    (size,) = INT16.unpack_from(buffer, position)
    position += 2
    if size < 0:
        if size != -1:
            raise MalformedMessage(f"negative string length {size}")
        return None, position
    stop = position + size
    if stop > end:
        raise _too_long(size, position, end)
    return str(buffer[position:stop], "utf-8"), stop


def read_string(buffer: memoryview, position: int, end: int) -> tuple[str, int]:
    value, position = read_nullable_string(buffer, position, end)
    if value is None:
        raise _is_null(position)
    return value, position


def read_compact_nullable_string(buffer: memoryview, position: int, end: int) -> tuple[str | None, int]:
    if buffer[position]:
        return read_compact_string(buffer, position, end)
    return None, position + 1


def read_compact_string(buffer: memoryview, position: int, end: int) -> tuple[str, int]:
    size = buffer[position]
    position += 1
    if size >= 0x80:
        size, position = read_uvarint(buffer, position - 1)
        if size > MAX_STRING_BYTES + 1:
            raise MalformedMessage(f"string of {size - 1} bytes: at most {MAX_STRING_BYTES}")
    stop = position + size - 1
    if stop > end:
        raise _too_long(size - 1, position, end)
    if size == 0:
        raise _is_null(position)
    return str(buffer[position:stop], "utf-8"), stop


def read_nullable_records(buffer: memoryview, position: int, end: int) -> tuple[memoryview | None, int]:
    """Return record data as a slice of the frame; the slice is valid only until the frame's buffer is reused."""
    (size,) = INT32.unpack_from(buffer, position)
    position += 4
    if size < 0:
        if size != -1:
            raise MalformedMessage(f"negative length {size}")
        return None, position
    stop = position + size
    if stop > end:
        raise _too_long(size, position, end)
    return buffer[position:stop], stop


def read_records(buffer: memoryview, position: int, end: int) -> tuple[memoryview, int]:
    value, position = read_nullable_records(buffer, position, end)
    if value is None:
        raise _is_null(position)
    return value, position


def read_compact_nullable_records(buffer: memoryview, position: int, end: int) -> tuple[memoryview | None, int]:
    size = buffer[position]
    position += 1
    if size >= 0x80:
        high = buffer[position]
        if high < 0x80:  # two-byte length, as for a batch with several records
            size, position = size & 0x7F | high << 7, position + 1
        else:
            size, position = read_uvarint(buffer, position - 1)
    if size == 0:
        return None, position
    stop = position + size - 1
    if stop > end:
        raise _too_long(size - 1, position, end)
    return buffer[position:stop], stop


def read_compact_records(buffer: memoryview, position: int, end: int) -> tuple[memoryview, int]:
    value, position = read_compact_nullable_records(buffer, position, end)
    if value is None:
        raise _is_null(position)
    return value, position


def _copied(reader: Any) -> Any:
    """Return a reader of `bytes` fields that copies the values of `reader`, because the values are used after the
    frame's buffer is reused.
    """

    def read(buffer: memoryview, position: int, end: int) -> tuple[bytes | None, int]:
        value, position = reader(buffer, position, end)
        return (None if value is None else bytes(value)), position

    read.__name__ = reader.__name__.replace("records", "bytes")
    return read


read_bytes = _copied(read_records)
read_nullable_bytes = _copied(read_nullable_records)
read_compact_bytes = _copied(read_compact_records)
read_compact_nullable_bytes = _copied(read_compact_nullable_records)


def read_array_length(buffer: memoryview, position: int) -> tuple[int, int]:
    """Return the number of elements; -1 means null."""
    (count,) = INT32.unpack_from(buffer, position)
    if count < -1:
        raise MalformedMessage(f"negative array length {count}")
    return count, position + 4


def read_compact_array_length(buffer: memoryview, position: int) -> tuple[int, int]:
    count, position = read_uvarint(buffer, position)
    return count - 1, position


def too_many_elements(count: int, remaining: int) -> TooManyElements:
    """Return the error that refuses an array of `count` elements, before memory is allocated for the array
    (CVE-2022-34917).
    """
    return TooManyElements(
        f"array of {count} elements, but {remaining} bytes remain, and a message has at most {MAX_ELEMENTS} elements"
    )


def null_array(position: int) -> MalformedMessage:
    return MalformedMessage(f"null array before byte {position}, where null is not allowed")


def too_many_tags(count: int) -> MalformedMessage:
    """Return the error for more than MAX_TAGS tagged fields, or for more than the remaining limit of elements in the
    message.
    """
    if count > MAX_TAGS:
        return MalformedMessage(f"{count} tagged fields in one struct: at most {MAX_TAGS}")
    return TooManyElements(f"{count} tagged fields: more than the remaining limit of elements for this message")


def read_tag(buffer: memoryview, position: int, end: int, previous: int) -> tuple[int, int, int]:
    """Read the head of a tagged field: return its tag, the position of its content, and the position at which the
    content must end. Each tag is greater than the `previous` tag (KIP-482).
    """
    tag, position = read_uvarint(buffer, position)
    if tag <= previous:
        raise MalformedMessage(f"tagged field {tag} after {previous}: invalid or out of order")
    size, position = read_uvarint(buffer, position)
    if position + size > end:
        raise MalformedMessage(f"tagged field {tag} of {size} bytes, but only {end - position} bytes remain")
    return tag, position, position + size


def check_tag_end(tag: int, position: int, stop: int) -> None:
    if position != stop:
        raise MalformedMessage(f"tagged field {tag} ends at byte {position}, its size says {stop}")


def read_presence(buffer: memoryview, position: int) -> tuple[bool, int]:
    """Return whether a nullable struct is present. Its marker byte says so: 1 means present, -1 means null."""
    marker = buffer[position]
    if marker not in (1, 0xFF):
        raise MalformedMessage(f"nullable struct marker {marker}: must be 1 or -1")
    return marker == 1, position + 1
