"""The command `oncelog judge`, which judges histories that tests in other languages have recorded."""

from __future__ import annotations

import os
import signal
import sys
from functools import partial

import click

from oncelog.cli.options import bootstrap_option
from oncelog.cli.output import say
from oncelog.cli.running import Failure

DEFAULT_LISTEN = "127.0.0.1:0"


@click.command()
@bootstrap_option
@click.option("--listen", default=DEFAULT_LISTEN, show_default=True, metavar="HOST:PORT", help="Port 0: any free one.")
@click.option(
    "--stop-at-eof", is_flag=True, help="Stop when standard input ends, and so with the process that started the judge."
)
def judge(bootstrap: str, listen: str, stop_at_eof: bool) -> None:
    """Serve a checker of exactly once over HTTP, for tests in any language: POST /verdict takes the history that the
    test has recorded as JSON, reads the topics, and returns whether every record is there exactly once, and the
    violations otherwise.

    The first line on standard output has the address.
    """
    from oncelog_broker.runtime.parent import at_end_of_input
    from oncelog_testing.judge.http_judge import Judge

    host, _, port = listen.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65_535:
        raise click.BadParameter(f"{listen!r} is not HOST:PORT", param_hint="--listen")
    try:
        served = Judge((host.strip("[]"), int(port)), bootstrap)
    except OSError as error:
        raise Failure(f"cannot listen on {listen}: {error.strerror or error}") from error
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    if stop_at_eof:
        at_end_of_input(partial(os.kill, os.getpid(), signal.SIGTERM))
    say(f"oncelog judge is on http://{host}:{served.server_address[1]}")
    sys.stdout.flush()
    with served:
        try:
            served.serve_forever()
        except KeyboardInterrupt:
            raise click.exceptions.Exit(130) from None
