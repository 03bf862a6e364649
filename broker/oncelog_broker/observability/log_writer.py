"""Writes log lines in a thread, so that a slow reader of the log does not block the broker.

A pipe can buffer 64 KB. If the reader of a full pipe pauses, the next `write` would block the event loop, and so every
client. Lines therefore wait in a bounded queue, and a thread writes them; lines are dropped while the queue is full.
The next line that is written then reports the number of dropped lines.
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
"""Maximum bytes of the queued lines; further lines are dropped."""
FLUSH_SECONDS: Final = 1.0
"""Seconds that the end of the process waits until the last lines are written."""


class LogWriter:
    """Writes lines to a file descriptor, in order, from its own thread. `put` never blocks.

    The thread writes directly to the descriptor, because at exit a blocked thread could hold the lock of a stream.
    """

    def __init__(self, descriptor: int, tell_dropped: Callable[[int], str]) -> None:
        """`tell_dropped` formats the line that reports the number of dropped lines."""
        self._descriptor = descriptor
        self._tell_dropped = tell_dropped
        self._lines: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._dropped = 0
        self._is_writing = False
        self._changed = threading.Condition()
        threading.Thread(target=self._run, name="log writer", daemon=True).start()

    def put(self, line: str) -> None:
        """Queue `line`, which has no trailing newline."""
        data = line.encode("utf-8", "backslashreplace") + b"\n"
        with self._changed:
            # The number of dropped lines is reported after the lines that are already queued. Until this report is
            # written, all further lines are dropped, so that the log has a single gap.
            if self._dropped or self._waiting_bytes + len(data) > MAX_WAITING_BYTES:
                self._dropped += 1
                return
            self._lines.append(data)
            self._waiting_bytes += len(data)
            self._changed.notify_all()

    def flush(self, seconds: float = FLUSH_SECONDS) -> bool:
        """Wait at most `seconds` until all lines are written. Returns whether all lines are written."""
        with self._changed:
            return self._changed.wait_for(lambda: not (self._lines or self._dropped or self._is_writing), seconds)

    def _run(self) -> None:
        while True:
            self._write(self._take())

    def _take(self) -> bytes:
        """Return the next queued line, or, after the last queued line, a line with the number of dropped lines, if any
        were dropped.
        """
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
            except BlockingIOError:  # Another process has made the descriptor non-blocking.
                room = select.poll()  # not select(), which refuses descriptors above 1023
                room.register(self._descriptor, select.POLLOUT)
                room.poll()
            except OSError:  # end the thread, because the reader has closed the pipe
                return


class QueuedHandler(logging.Handler):
    """Formats a record when it is logged, since the record's values may change later, and passes the line to a
    LogWriter.
    """

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
            __name__, logging.WARNING, __file__, 0, "log lines were dropped: their reader is too slow", None, None
        )
        record.count = count
        return self.format(record)
