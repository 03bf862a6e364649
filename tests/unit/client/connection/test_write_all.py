"""A request is written whole and in order, and large parts are not copied into one buffer with others."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.connection import transport
from oncelog.connection.transport import write_all

LIMIT = 8


class Written(asyncio.WriteTransport):
    """Records each call; `copied` has the size of each buffer into which `writelines` of Python 3.11 copies parts."""

    def __init__(self) -> None:
        self.data = b""
        self.calls: list[Any] = []
        self.copied: list[int] = []

    def write(self, data: Any) -> None:
        self.data += data
        self.calls.append(data)

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        joined = b"".join(list_of_data)
        self.copied.append(len(joined))
        self.write(joined)


@pytest.mark.parametrize("copies", [True, False], ids=["3.11", "3.12"])
@given(st.lists(st.binary(max_size=3 * LIMIT), min_size=1, max_size=6))
def test_all_parts_are_written_in_order(copies: bool, parts: list[bytes]) -> None:
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(transport, "COPIED_BYTES", LIMIT)
        patches.setattr(transport, "WRITELINES_COPIES", copies)
        written = Written()
        write_all(written, parts)
    assert written.data == b"".join(parts)


def test_python_3_11_copies_no_large_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "COPIED_BYTES", LIMIT)
    monkeypatch.setattr(transport, "WRITELINES_COPIES", True)
    large = bytearray(LIMIT)
    written = Written()
    write_all(written, [b"a", b"b", large, b"c"])
    assert not written.copied
    assert [bytes(each) for each in written.calls] == [b"ab", bytes(large), b"c"]
    assert written.calls[1].obj is large


@pytest.mark.parametrize(("copies", "size"), [(True, LIMIT - 1), (False, LIMIT)])
def test_other_requests_are_one_call(monkeypatch: pytest.MonkeyPatch, copies: bool, size: int) -> None:
    monkeypatch.setattr(transport, "COPIED_BYTES", LIMIT)
    monkeypatch.setattr(transport, "WRITELINES_COPIES", copies)
    written = Written()
    write_all(written, [b"a", bytes(size)])
    assert written.copied == [size + 1]
