"""Handles standard streams that are closed, or that are redirected to a full disk.

If a standard stream is closed, the next opened file or socket would get its descriptor number, and printed text would
be written to that file or socket.
Therefore this module first opens a descriptor with that number on which every read or write fails. A command then gets
an error only if it uses the stream.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from typing import Any

STDIN: Final = 0
STDOUT: Final = 1
STDERR: Final = 2
FAILED: Final = 1


@contextmanager
def whole_streams() -> Iterator[None]:
    """Context manager that wraps a command. If writing to standard output fails, the command prints one line on
    standard error and ends with exit code 1.
    """
    _fill_gaps()
    code: object = None
    try:
        try:
            yield
        except SystemExit as end:  # click ends every command with SystemExit
            code = end.code
        sys.stdout.flush()
    except OSError as error:
        code = _failed(reason_of(error))
    _flush_errors()
    sys.exit(code)  # type: ignore[arg-type]


def reason_of(error: OSError) -> str:
    """Return the message for an OSError that the command did not handle; the message names the file, or standard
    output.
    """
    if error.filename is not None:
        return f"{error.filename}: {error.strerror or error}"
    return f"cannot write to standard output: {error.strerror or error}"


def _failed(message: str) -> int:
    discard(STDOUT)
    try:
        sys.stderr.write(f"oncelog: {message}\n")
    except OSError:
        pass  # standard error fails too, so the error cannot be reported
    return FAILED


def _flush_errors() -> None:
    try:
        sys.stderr.flush()
    except OSError:
        discard(STDERR)


def discard(descriptor: int) -> None:
    """Discard the buffer, because otherwise Python would complain at exit."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, descriptor)
    os.close(null)


def _fill_gaps() -> None:
    # A descriptor opened for writing makes every read fail, and a descriptor opened for reading makes every write fail.
    if sys.stdin is None:
        sys.stdin = _stream(STDIN, os.O_WRONLY, "r")
    if sys.stdout is None:
        sys.stdout = _stream(STDOUT, os.O_RDONLY, "w")
    if sys.stderr is None:
        sys.stderr = _stream(STDERR, os.O_WRONLY, "w")


def _stream(descriptor: int, flags: int, mode: str) -> Any:
    opened = os.open(os.devnull, flags)
    if opened != descriptor:
        os.dup2(opened, descriptor)
        os.close(opened)
    return open(descriptor, mode, encoding="utf-8", closefd=False)
