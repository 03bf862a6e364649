"""Reads the first lines that a process prints, which contain its addresses."""

from __future__ import annotations

import os
import selectors
import subprocess
import time

__tracebackhide__ = True  # hides this module in the traceback of a failed test


def first_lines(process: subprocess.Popen[str] | subprocess.Popen[bytes], count: int, seconds: float) -> list[str]:
    """Return the first lines of the process's standard output, at least `count`; the list is empty if the process ends
    before it has printed them, or needs longer than `seconds`.
    """
    assert process.stdout is not None
    output, text = process.stdout.fileno(), b""
    with selectors.DefaultSelector() as selector:
        selector.register(output, selectors.EVENT_READ)
        deadline = time.monotonic() + seconds
        while text.count(b"\n") < count and selector.select(max(0.0, deadline - time.monotonic())):
            more = os.read(output, 4096)
            if not more:
                break
            text += more
    return text.decode().splitlines() if text.count(b"\n") >= count else []
