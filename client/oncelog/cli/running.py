"""Runs a command: errors become one line and an exit code; an error that a user can cause never shows a traceback.

0    success
1    the broker cannot be reached or refused a request, or a file is corrupt; standard error shows `oncelog: why`
2    wrong usage (click's own code)
130  Ctrl-C, which a shell shows for SIGINT; 141  the reader of standard output ended (SIGPIPE)
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from oncelog.cli.streams import discard, reason_of
from oncelog.escaping import visible

if TYPE_CHECKING:
    from typing import IO

    from oncelog.errors import KafkaError

T = TypeVar("T")

INTERRUPTED: Final = 130
BROKEN_PIPE: Final = 141

_ERRNO: Final = re.compile(r"\[Errno (\d+)\]")
_PLACE: Final = re.compile(r"(\S+:\d+): ")
"""Matches the address (host:port) with which an error message begins."""
NONE_REACHED: Final = "no broker can be reached: "
ADVERTISED: Final = "Is that broker running, and can it be reached from here? (its advertised.listeners)"
_LOOKUP_ERRNO: Final = re.compile(r"\[Errno -\d+\] ")
"""Matches the error number of a failed name resolution. These numbers are not numbers of the operating system, and the
message already contains the text of the error.
"""


class Failure(click.ClickException):
    """An exception that ends the command with exit code 1 and prints `oncelog: message` on standard error."""

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(visible(f"oncelog: {self.message}", "\n"), file=file or sys.stderr)


def run(command: Callable[[], Coroutine[Any, Any, T]], bootstrap: str) -> T:
    """Run a command that uses the broker at `bootstrap`. Raises click's exceptions only: Failure, UsageError, Exit."""
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
    except OSError as error:  # an error of a file; network errors are KafkaErrors
        raise Failure(reason_of(error)) from error
    except KeyboardInterrupt:
        raise click.exceptions.Exit(INTERRUPTED) from None


def describe(error: KafkaError, bootstrap: str) -> str:
    """Return the error message: Kafka's name for the error and the message; without a connection, the address and the
    remedy.
    """
    from oncelog.errors import ConnectionFailed, PartialFailure

    if isinstance(error, ConnectionFailed):
        return visible(_unreachable(error.message, _addresses(bootstrap)))
    if isinstance(error, PartialFailure):
        return visible("; ".join(f"{code.name}: {message}" for code, message in error.reasons()))
    if str(error) == error.message:
        return visible(error.message)  # no broker sent it, so Kafka's name would mislead
    return visible(f"{error.code.name}: {error.message}")


def _addresses(bootstrap: str) -> list[str]:
    """Return the attempted addresses, with their ports; the text itself if it contains none ("the cluster")."""
    from oncelog.config import ClientConfig, load
    from oncelog.errors import ConfigError

    try:
        return (
            [bootstrap] if " " in bootstrap else list(map(str, load(ClientConfig, bootstrap, {}).bootstrap_addresses()))
        )
    except ConfigError:
        return [bootstrap]


def _unreachable(message: str, bootstrap: list[str]) -> str:
    """Return the message for a ConnectionFailed with the unreachable address: a bootstrap server, or a broker's
    advertised listener.
    """
    where = ",".join(bootstrap)
    told = message.removeprefix(NONE_REACHED)
    place = _PLACE.match(told)
    if told == message:
        if place is None:
            return message
        if place[1] not in bootstrap and " " not in where:
            why = _reason(told, place[1])
            return f"cannot reach {place[1]}, where the cluster says that one of its brokers is: {why}. {ADVERTISED}"
    why = _reason(told, where)
    return f"cannot reach {where}: {why}. {_advice(why)}"


def _reason(message: str, where: str) -> str:
    """Return the operating system's text for the error number if the message contains one, because asyncio says only
    "Connect call
    failed".
    """
    numbers = dict.fromkeys(int(number) for number in _ERRNO.findall(message))
    words = ", ".join(os.strerror(number).lower() for number in numbers)
    return words or _LOOKUP_ERRNO.sub("", message).removeprefix(f"{where}: ")


def _advice(why: str) -> str:
    """Return what the user can do about a failed connection with this reason."""
    if "no connection within" in why or "closed" in why or "Error" in why or "protocol" in why:
        return "Is a broker running there, and does security.protocol (--command-config) fit its listener?"
    if "not known" in why or "resolved" in why:
        return "Is the name right? (--bootstrap-server)"
    return "Is the broker running? (oncelog serve)"


def silenced() -> click.exceptions.Exit:
    """Return the exception that ends the command after the reader of its output has closed the pipe. The buffer of
    standard output is
    discarded, because otherwise Python would complain at exit.
    """
    try:
        discard(sys.stdout.fileno())
    except (OSError, ValueError):
        pass  # standard output is not a real file, as in a test
    return click.exceptions.Exit(BROKEN_PIPE)
