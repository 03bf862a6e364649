"""The entry point of `oncelog`.

Tools start `oncelog serve` often, and importing click and declaring the options takes a tenth of a broker's start. So
the broker parses the usual arguments of `serve` itself (PLAIN); all other command lines go to click (`group`).
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Final

from oncelog.cli.streams import whole_streams

PLAIN: Final = {"serve": "oncelog_broker.serve:serve_plain"}
"""Maps a command to a function of its own. The function gets the arguments behind the command's name; it returns None
if click must parse them, otherwise it runs the command and returns the exit code.
"""
COMPLETION_VARIABLE: Final = "_ONCELOG_COMPLETE"
"""The variable with which a shell asks click for completions."""


def main() -> None:
    """The entry point of the console script `oncelog`."""
    with whole_streams():
        code = _run_plain(sys.argv[1:])
        if code is not None:
            sys.exit(code)
        from oncelog.cli.group import cli

        cli(prog_name="oncelog")


def _run_plain(arguments: list[str]) -> int | None:
    """Run the command without click if possible; returns its exit code, or None."""
    if not arguments or arguments[0] not in PLAIN or COMPLETION_VARIABLE in os.environ:
        return None
    module, _, function = PLAIN[arguments[0]].partition(":")
    try:
        run = getattr(import_module(module), function)
    except ModuleNotFoundError:
        return None  # click says what is not installed
    code: int | None = run(arguments[1:])
    return code
