"""Messages between workers and their supervisor are parsed to the values that were encoded, in pieces of any size."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

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
from oncelog_broker.metadata.stores.supervised.messages import (
    Frames,
    encode_error,
    encode_operation,
    parse_error,
    parse_operation,
    parse_stat,
)

EVERY_BYTE = bytes(range(256))


@pytest.mark.parametrize(
    "operation",
    [
        Check("/a", 3),
        Create("/ä/€", EVERY_BYTE),
        Create("/a", b"", ephemeral=True),
        Set("/a", EVERY_BYTE, 7),
        Set("/a", b""),
        Delete("/a", 0),
    ],
)
def test_an_operation_arrives_as_it_was_sent(operation: Operation) -> None:
    assert parse_operation(sent_and_received(encode_operation(operation))) == operation


@pytest.mark.parametrize("encoded", [[], ["create", "/a"], ["set", "/a", 1, 2], ["rename", "/a", "/b"]])
def test_no_other_operation_is_parsed(encoded: list[Any]) -> None:
    with pytest.raises(ValueError, match="not an operation"):
        parse_operation(encoded)


@pytest.mark.parametrize(
    "error",
    [
        NoNode("/a"),
        NodeExists("/a"),
        NotEmpty("/a"),
        NoChildrenForEphemerals("/a"),
        BadVersion("/a", 3, 4),
        BadVersion("/a", 3),
        ConnectionLost("", "the disk is full"),
        SessionExpired("", "it is over"),
        StoreUnavailable("/a", "why"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_arrives_as_it_was_sent(error: MetadataError) -> None:
    received = parse_error(sent_and_received(encode_error(error)))
    assert type(received) is type(error)
    assert (str(received), received.path) == (str(error), error.path)


def test_an_error_that_the_contract_does_not_name_makes_the_store_unavailable() -> None:
    class Odd(MetadataError):
        pass

    assert type(parse_error(encode_error(Odd("/a", "odd")))) is StoreUnavailable


def test_a_stat_arrives_as_it_was_sent() -> None:
    stat = Stat(1, 2, 3, 1 << 62)
    (fields,) = sent_and_received([stat])
    assert parse_stat(fields) == stat
    assert parse_stat(None) is None


@pytest.mark.parametrize("size", [1, 3, 4, 5, 1000])
def test_frames_are_cut_out_of_pieces_of_any_size(size: int) -> None:
    messages = [[number, "x" * number] for number in range(40)]
    stream = b"".join(framed(each) for each in messages)
    received: list[list[Any]] = []
    frames = Frames(received.append, lambda: None)
    for start in range(0, len(stream), size):
        frames.data_received(stream[start : start + size])
    assert received == messages


class Recording(asyncio.Transport):
    """A transport that keeps the bytes that are written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return False


def framed(message: list[Any]) -> bytes:
    transport, frames = Recording(), Frames(lambda _: None, lambda: None)
    frames.connection_made(transport)
    frames.send(message)
    return transport.written


def sent_and_received(message: list[Any]) -> list[Any]:
    received: list[list[Any]] = []
    Frames(received.append, lambda: None).data_received(framed(message))
    return received[0]
