"""Shared code of the commands that start Spark: options and error handling."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import click

from oncelog.cli.options import KEY_VALUE
from oncelog.cli.output import tell
from oncelog.cli.running import INTERRUPTED, Failure
from oncelog_pipeline.jobs.failures import told
from oncelog_pipeline.jobs.session import LOG_LEVELS

log_option: Final = click.option(
    "--log-level",
    type=click.Choice(LOG_LEVELS, case_sensitive=False),
    default="OFF",
    show_default=True,
    help="The log level of Spark on standard error.",
)
spark_option: Final = click.option(
    "--spark",
    "spark_settings",
    type=KEY_VALUE,
    multiple=True,
    metavar="KEY=VALUE",
    help="Spark's configuration, such as spark.master=local[4]. May be repeated.",
)


@contextmanager
def failing(stopped: str = "stopped") -> Iterator[None]:
    """Report errors that a user can cause in one line. After Ctrl-C, the text in `stopped` is printed. Raises Failure,
    Exit.
    """
    try:
        yield
    except (click.ClickException, click.exceptions.Exit):
        raise
    except KeyboardInterrupt:
        tell(f"oncelog: {stopped}")
        raise click.exceptions.Exit(INTERRUPTED) from None
    except Exception as error:  # Spark's errors are identified by name, as PySpark may not be installed
        raise Failure(told(type(error).__name__, str(error))) from error
