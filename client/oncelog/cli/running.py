"""Running a command: errors become one line and an exit code, never a traceback for what a user can cause.

0    done
1    the broker cannot be reached, refused something, or a file is corrupt: `oncelog: why` on standard error
2    wrong usage (click's own code)
130  Ctrl-C; 141  whoever read our output went away: what a shell shows for SIGINT and SIGPIPE
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from oncelog.cli.streams import discard
from oncelog.escaping import visible

if TYPE_CHECKING:
    from typing import IO

    from oncelog.errors import KafkaError

T = TypeVar("T")

INTERRUPTED: Final = 130
BROKEN_PIPE: Final = 141

_ERRNO: Final = re.compile(r"\[Errno (\d+)\]")
_LOOKUP_ERRNO: Final = re.compile(r"\[Errno -\d+\] ")
"""Name resolution has numbers of its own; its words stand in the message already."""


class Failure(click.ClickException):
    """Ends the command with exit code 1 and `oncelog: message` on standard error."""

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(visible(f"oncelog: {self.message}", "\n"), file=file or sys.stderr)


def run(command: Callable[[], Coroutine[Any, Any, T]], bootstrap: str) -> T:
    """Run what talks to the broker at `bootstrap`. Raises click's exceptions only: Failure, UsageError, Exit."""
    import asyncio

    from oncelog.cli.patience import patient
    from oncelog.errors import ConfigError, KafkaError

    try:
        with patient():
            return asyncio.run(command())
    except ConfigError as error:
        raise click.UsageError(error.message) from error
    except KafkaError as error:
        raise Failure(describe(error, bootstrap)) from error
    except BrokenPipeError:
        raise silenced() from None
    except OSError as error:  # the network's are KafkaErrors
        raise Failure(f"cannot write to standard output: {error.strerror or error}") from error
    except KeyboardInterrupt:
        raise click.exceptions.Exit(INTERRUPTED) from None


def describe(error: KafkaError, bootstrap: str) -> str:
    """What to tell a user: Kafka's name for the error and the message; for no connection, what to do."""
    from oncelog.errors import ConnectionFailed, PartialFailure

    if isinstance(error, ConnectionFailed):
        why = _reason(error.message.removeprefix("no broker can be reached: "))
        return f"cannot reach {bootstrap}: {why}. Is the broker running? (oncelog serve)"
    if isinstance(error, PartialFailure):
        return visible("; ".join(f"{code.name}: {message}" for code, message in error.reasons()))
    return visible(f"{error.code.name}: {error.message}")


def _reason(message: str) -> str:
    """The system's own words where the message has its numbers: asyncio says only "Connect call failed"."""
    numbers = dict.fromkeys(int(number) for number in _ERRNO.findall(message))
    return ", ".join(os.strerror(number).lower() for number in numbers) or _LOOKUP_ERRNO.sub("", message)


def silenced() -> click.exceptions.Exit:
    """The end of a command whose output nobody reads any more.

    What is left in the buffer of standard output goes nowhere, or Python would complain at its own exit.
    """
    try:
        discard(sys.stdout.fileno())
    except (OSError, ValueError):
        pass  # not a real file: a test's
    return click.exceptions.Exit(BROKEN_PIPE)
