"""Log lines that no process reads block no thread: they wait in a bounded queue, and the number of dropped lines is
reported.
"""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections.abc import Iterator

import pytest

from oncelog_broker.observability.log_writer import MAX_WAITING_BYTES, QueuedHandler
from oncelog_broker.observability.logs import JsonFormatter, TextFormatter


class Pipe:
    """A pipe in place of standard error, as a parent process may provide it."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()

    def close(self) -> None:
        os.close(self.writer)
        os.close(self.reader)

    def lines(self, until: str) -> list[str]:
        """Read all lines up to the first line that contains `until`."""
        data = b""
        while not re.search(until, data.rpartition(b"\n")[0].decode()):
            data += os.read(self.reader, 65536)
        return data.decode().splitlines()


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    held = Pipe()
    yield held
    held.close()


def logger_to(pipe: Pipe, formatter: logging.Formatter) -> tuple[logging.Logger, QueuedHandler]:
    logger = logging.Logger("of this test")
    handler = QueuedHandler(pipe.writer, formatter)
    logger.addHandler(handler)
    return logger, handler


def test_lines_come_in_order_and_as_they_were_when_logged(pipe: Pipe) -> None:
    logger, _ = logger_to(pipe, JsonFormatter())
    changing = ["as it was"]
    logger.warning("first", extra={"list": changing})
    changing.append("changed")
    logger.warning("last")
    first, last = map(json.loads, pipe.lines("last"))
    assert (first["event"], first["list"], last["event"]) == ("first", ["as it was"], "last")


def test_a_reader_that_rests_stops_nobody_and_is_told_what_it_missed(pipe: Pipe) -> None:
    logger, handler = logger_to(pipe, TextFormatter())
    line = "x" * 1000
    count = 2 * MAX_WAITING_BYTES // len(line)
    started = time.monotonic()
    for number in range(count):
        logger.warning("%s", f"number={number} {line}")
    assert not handler.writer.flush(0.0)
    assert time.monotonic() - started < 20.0  # a blocking write would wait for ever
    lines = pipe.lines(r"dropped.*count=\d+")
    numbers = [int(found[1]) for found in (re.search(r"number=(\d+)", line) for line in lines) if found]
    told = re.search(r"log lines were dropped: .*count=(\d+)", lines[-1])
    assert told is not None
    assert numbers == list(range(len(numbers)))
    assert len(numbers) + int(told[1]) == count
    logger.warning("and on it goes")
    assert "and on it goes" in pipe.lines("and on it goes")[-1]
    assert handler.writer.flush(10.0)


def test_a_reader_that_is_gone_is_no_failure(pipe: Pipe) -> None:
    logger, handler = logger_to(pipe, TextFormatter())
    os.close(pipe.reader)
    pipe.reader = os.dup(pipe.writer)
    logger.warning("unread")
    assert handler.writer.flush(10.0)
