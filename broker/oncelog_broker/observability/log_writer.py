"""Log lines leave through a thread, so that whoever does not read them stops nobody.

A pipe takes 64 KB. When its reader rests, the next `write` to it would hold the event loop, and every client with it.
So lines wait in a queue with a bound, the thread writes them, and what finds the queue full is dropped. The first line
that can be written after that says how many there were.
"""

from __future__ import annotations

import logging
import os
import select
import threading
from collections import deque
from collections.abc import Callable
from typing import Final

MAX_WAITING_BYTES: Final = 1024 * 1024
"""Lines that wait to be written; further ones are dropped."""
FLUSH_SECONDS: Final = 1.0
"""How long the end of the process waits for the last lines."""


class LogWriter:
    """Writes lines to a descriptor, in order, from a thread of its own. `put` never waits for the reader.

    The descriptor is written to directly: the end of a process must not find a stream locked by a thread that hangs.
    """

    def __init__(self, descriptor: int, tell_dropped: Callable[[int], str]) -> None:
        """`tell_dropped` makes the line that says how many were dropped."""
        self._descriptor = descriptor
        self._tell_dropped = tell_dropped
        self._lines: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._dropped = 0
        self._is_writing = False
        self._changed = threading.Condition()
        threading.Thread(target=self._run, name="log writer", daemon=True).start()

    def put(self, line: str) -> None:
        """Write `line`, which has no newline at its end, some time soon."""
        data = line.encode("utf-8", "backslashreplace") + b"\n"
        with self._changed:
            # What was dropped is told behind what waited then: until that, whatever comes belongs to the same gap.
            if self._dropped or self._waiting_bytes + len(data) > MAX_WAITING_BYTES:
                self._dropped += 1
                return
            self._lines.append(data)
            self._waiting_bytes += len(data)
            self._changed.notify_all()

    def flush(self, seconds: float = FLUSH_SECONDS) -> bool:
        """Wait until all is written, at most that long; whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: not (self._lines or self._dropped or self._is_writing), seconds)

    def _run(self) -> None:
        while True:
            self._write(self._take())

    def _take(self) -> bytes:
        """What waits, or how much was dropped behind what waited before."""
        with self._changed:
            self._is_writing = False
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._lines or self._dropped)
            self._is_writing = True
            if not self._lines:
                dropped, self._dropped = self._dropped, 0
                return self._tell_dropped(dropped).encode() + b"\n"
            data = self._lines.popleft()
            self._waiting_bytes -= len(data)
            return data

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:  # it is not blocking: whoever shares it has made it so
                room = select.poll()  # select() takes no descriptor above 1023
                room.register(self._descriptor, select.POLLOUT)
                room.poll()
            except OSError:  # nobody will ever read it
                return


class QueuedHandler(logging.Handler):
    """Formats a record where it is logged, since what it names may change, and lets a LogWriter write the line."""

    def __init__(self, descriptor: int, formatter: logging.Formatter) -> None:
        super().__init__()
        self.setFormatter(formatter)
        self.writer = LogWriter(descriptor, self._dropped_line)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self.writer.put(self.format(record))
        except Exception:
            self.handleError(record)

    def flush(self) -> None:
        self.writer.flush()

    def _dropped_line(self, count: int) -> str:
        record = logging.LogRecord(
            __name__, logging.WARNING, __file__, 0, "log lines were dropped: nobody read them in time", None, None
        )
        record.count = count
        return self.format(record)
