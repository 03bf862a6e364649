"""The ZooKeeper proxy of the tests distinguishes frames as ZooKeeper does."""

from __future__ import annotations

from struct import pack

from tests.support.zookeeper.frames import Direction, FrameReader, Op


def framed(payload: bytes) -> bytes:
    return pack(">i", len(payload)) + payload


def request(xid: int, op: int, rest: bytes = b"") -> bytes:
    return framed(pack(">ii", xid, op) + rest)


def answer(xid: int) -> bytes:
    return framed(pack(">iqi", xid, 1, 0))


def test_the_first_frame_each_way_is_the_session() -> None:
    reader = FrameReader()
    assert reader.read(Direction.REQUESTS, framed(b"connect")).op == Op.CREATE_SESSION
    assert reader.read(Direction.ANSWERS, framed(b"session")).op == Op.CREATE_SESSION


def test_an_answer_is_of_the_kind_of_its_request() -> None:
    reader = FrameReader()
    for direction in Direction:
        reader.read(direction, framed(b"session"))
    sent = [
        reader.read(Direction.REQUESTS, request(xid, op)) for xid, op in [(1, Op.MULTI), (2, Op.GET_DATA), (-2, 11)]
    ]
    assert [(frame.op, frame.is_write) for frame in sent] == [(Op.MULTI, True), (Op.GET_DATA, False), (Op.PING, False)]
    answered = [reader.read(Direction.ANSWERS, answer(xid)) for xid in (-1, -2, 1, 2)]
    assert [frame.op for frame in answered] == [Op.NOTIFICATION, Op.PING, Op.MULTI, Op.GET_DATA]
    assert [frame.number for frame in answered] == [2, 3, 4, 5]


def test_a_request_names_its_paths() -> None:
    reader = FrameReader()
    reader.read(Direction.REQUESTS, framed(b"connect"))
    frame = reader.read(Direction.REQUESTS, request(1, Op.CREATE, pack(">i", 11) + b"/controller"))
    assert frame.mentions("/controller")
    assert not frame.mentions("/brokers")
