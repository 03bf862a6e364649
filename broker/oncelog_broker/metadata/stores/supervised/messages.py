"""The messages between a worker and the supervisor that serves its metadata store, and the protocol that carries them.

A message is a JSON array in a frame: four bytes of length, most significant first, then UTF-8. The data of a node is
encoded as text in which each character stands for one byte (Latin-1), because JSON has no type for bytes, and most data
is ASCII.

    worker       [id, name, argument, ...]           a request; ids begin with 1 and grow
    supervisor   [id, zxid, "done", value]           its response
                 [id, zxid, "failed", error, path, message, expected, actual]
                 [0, zxid, "changed", path, ...]     nodes that were created, set or deleted, before the response to the
                                                     write that changed the nodes
                 [0, zxid, "over"]                   the session is over; "begin" begins another session

`zxid` is the id of the store's last write. The messages need no versions, because the supervisor starts the workers
from its own release.
"""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

from oncelog_broker.metadata.stores.store import (
    BadVersion,
    Check,
    ConnectionLost,
    Create,
    Delete,
    MetadataError,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    SessionExpired,
    Set,
    Stat,
    StoreUnavailable,
)

MAX_REQUEST_FRAME: Final = 8 << 20
"""Maximum bytes of one request. A write has at most `store.MAX_REQUEST_BYTES`, and JSON encodes a byte as at most six
characters.
"""
NOTICE: Final = 0
"""The id of a message that is not a response to a request."""
_LENGTH: Final = struct.Struct(">I")

_NAMED: Final[dict[str, Callable[[str, str], MetadataError]]] = {
    NoNode.__name__: lambda path, _: NoNode(path),
    NodeExists.__name__: lambda path, _: NodeExists(path),
    NotEmpty.__name__: lambda path, _: NotEmpty(path),
    NoChildrenForEphemerals.__name__: lambda path, _: NoChildrenForEphemerals(path),
    ConnectionLost.__name__: ConnectionLost,
    SessionExpired.__name__: SessionExpired,
}


class Frames(asyncio.Protocol):
    """One end of the connection between a worker and the supervisor: divides received bytes into messages, and sends
    messages.
    """

    def __init__(
        self,
        on_message: Callable[[list[Any]], None],
        on_lost: Callable[[], None],
        max_frame: int | None = None,
    ) -> None:
        """`on_lost`: called once, when the other process has ended or the connection was closed. `max_frame` is the
        maximum bytes of a frame; a longer frame closes the connection. None means no limit.
        """
        self._on_message = on_message
        self._on_lost = on_lost
        self._max_frame = max_frame
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None

    @property
    def is_connected(self) -> bool:
        """Whether the connection was made, and neither end has closed it."""
        return self._transport is not None and not self._transport.is_closing()

    def send(self, message: Sequence[object]) -> None:
        """Send a message; does nothing on a closed connection."""
        if self._transport is not None and self.is_connected:
            body = json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode()
            self._transport.write(_LENGTH.pack(len(body)) + body)

    def close(self) -> None:
        """Close the connection, after all messages passed to `send` have been sent."""
        if self._transport is not None:
            self._transport.close()

    # --- methods that the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's transport does not derive from WriteTransport

    def data_received(self, data: bytes) -> None:
        received, at = self._received, 0
        received += data
        while len(received) - at >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(received, at)
            if self._max_frame is not None and length > self._max_frame:
                self.close()
                return
            end = at + _LENGTH.size + length
            if len(received) < end:
                break
            message = json.loads(received[at + _LENGTH.size : end])
            at = end
            self._on_message(message)
        del received[:at]

    def connection_lost(self, exc: Exception | None) -> None:
        self._on_lost()


def as_text(data: bytes) -> str:
    """Return the text that stands for the data of a node in a message."""
    return data.decode("latin-1")


def as_bytes(text: str) -> bytes:
    """Return the data of a node from the text that stands for it in a message."""
    return text.encode("latin-1")


def encode_operation(operation: Operation) -> list[object]:
    """Return the JSON array for an operation; the array begins with the name of the operation."""
    match operation:
        case Check(path, version):
            return ["check", path, version]
        case Create(path, data, ephemeral):
            return ["create", path, as_text(data), ephemeral]
        case Set(path, data, version):
            return ["set", path, as_text(data), version]
        case Delete(path, version):
            return ["delete", path, version]


def parse_operation(encoded: Sequence[Any]) -> Operation:
    """Return the operation that a JSON array describes. Raises ValueError for any other array."""
    match encoded:
        case ["check", str(path), int(version)]:
            return Check(path, version)
        case ["create", str(path), str(data), bool(ephemeral)]:
            return Create(path, as_bytes(data), ephemeral)
        case ["set", str(path), str(data), int(version)]:
            return Set(path, as_bytes(data), version)
        case ["delete", str(path), int(version)]:
            return Delete(path, version)
    raise ValueError(f"not an operation: {encoded!r:.100}")


def encode_error(error: MetadataError) -> list[object]:
    """Return the fields of an error response: name, path and message of the error; for a BadVersion error also the
    expected and the actual version.
    """
    fields: list[object] = [type(error).__name__, error.path, error.message]
    return [*fields, error.expected, error.actual] if isinstance(error, BadVersion) else fields


def parse_error(fields: Sequence[Any]) -> MetadataError:
    """Return the exception for an error response; StoreUnavailable if `MetadataStore` does not define the error
    class.
    """
    name, path, message, *versions = fields
    if name == BadVersion.__name__:
        return BadVersion(path, *versions)
    named = _NAMED.get(name)
    return StoreUnavailable(path, message) if named is None else named(path, message)


def parse_stat(fields: Sequence[int] | None) -> Stat | None:
    """Return the stat of a node from an array of numbers in a response."""
    return None if fields is None else Stat(*fields)
