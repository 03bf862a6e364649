"""The three standard streams as a process gets them: any may be closed, or on a disk that is full.

A descriptor that is closed is given to the next file or socket that is opened, and what is printed would go there. So
it is filled first, with something that cannot be read, or written: who needs it gets an error, and nobody else does.
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
    """Around a command. What cannot be written to standard output is one line on standard error, and exit code 1."""
    _fill_gaps()
    code: object = None
    try:
        try:
            yield
        except SystemExit as end:  # how every command of click ends
            code = end.code
        sys.stdout.flush()
    except OSError as error:
        code = _failed(reason_of(error))
    _flush_errors()
    sys.exit(code)  # type: ignore[arg-type]


def reason_of(error: OSError) -> str:
    """What to tell of an error that no command has handled: of the file that it names, else of standard output."""
    if error.filename is not None:
        return f"{error.filename}: {error.strerror or error}"
    return f"cannot write to standard output: {error.strerror or error}"


def _failed(message: str) -> int:
    discard(STDOUT)
    try:
        sys.stderr.write(f"oncelog: {message}\n")
    except OSError:
        pass  # there is nobody left to tell
    return FAILED


def _flush_errors() -> None:
    try:
        sys.stderr.flush()
    except OSError:
        discard(STDERR)


def discard(descriptor: int) -> None:
    """What is still in the buffer goes nowhere, or Python would complain at its own exit."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, descriptor)
    os.close(null)


def _fill_gaps() -> None:
    # Reading from what is open for writing only fails, and the other way round.
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
