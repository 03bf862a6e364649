"""The end of standard input is noticed, and other events do not count as its end."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from oncelog_broker.runtime import parent
from oncelog_broker.runtime.parent import at_end_of_input


@pytest.fixture(params=[True, False], ids=["blocking", "non-blocking"])
def pipe(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Replace standard input with a pipe; yield the pipe's other end."""
    reading, writing = os.pipe()
    os.set_blocking(reading, request.param)
    monkeypatch.setattr(parent, "STANDARD_INPUT", reading)
    with os.fdopen(reading, "rb"):
        yield writing


def test_only_the_end_of_input_means_the_end_of_the_parent(pipe: int, monkeypatch: pytest.MonkeyPatch) -> None:
    reads, ended = threading.Semaphore(0), threading.Event()

    def read(*arguments: int) -> bytes:
        reads.release()
        return os_read(*arguments)

    os_read = os.read
    monkeypatch.setattr(os, "read", read)
    at_end_of_input(ended.set, threading.TIMEOUT_MAX)
    assert reads.acquire(timeout=60)  # a read starts before any input
    os.write(pipe, b"something")
    assert reads.acquire(timeout=60)
    assert not ended.is_set()
    os.close(pipe)
    assert ended.wait(60)
