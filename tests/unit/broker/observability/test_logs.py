"""Log lines may contain names that clients chose, and these names cannot steer a terminal."""

from __future__ import annotations

import json
import logging
import sys

import pytest

from oncelog_broker.observability.logs import JsonFormatter, OfWorker, TextFormatter

HOSTILE = "esc\x1b[2J\x7f\x9b1m\u202etxt\nline"


def record(message: str, *, raises: bool = False, **extra: object) -> logging.LogRecord:
    made = logging.LogRecord("oncelog", logging.WARNING, __file__, 1, message, None, None)
    made.__dict__.update(extra)
    if raises:
        try:
            raise ValueError(HOSTILE)
        except ValueError:
            made.exc_info = sys.exc_info()
    return made


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()])
def test_names_steer_no_terminal_and_make_no_lines(formatter: logging.Formatter) -> None:
    line = formatter.format(record("a member joined", group=HOSTILE, client=HOSTILE))
    assert line.isprintable()
    of_client = formatter.format(record(f"topic {HOSTILE}: asking again"))
    assert of_client.isprintable()
    with_stack = formatter.format(record("a task failed", raises=True))
    assert all(each.isprintable() for each in with_stack.split("\n"))


def test_json_logs_keep_names_unescaped() -> None:
    assert json.loads(JsonFormatter().format(record("joined", group=HOSTILE)))["group"] == HOSTILE


def test_plain_text_is_logged_unchanged() -> None:
    assert (
        TextFormatter()
        .format(record("ready", group="billing", why="two words"))
        .endswith(' warning ready group=billing why="two words"')
    )


def test_the_lines_of_a_worker_have_its_number() -> None:
    """The record's own extra fields come first, and take precedence over fields of the context."""
    ours = record("ready", group="billing")
    assert OfWorker(2).filter(ours)
    assert TextFormatter().format(ours).endswith(" warning ready group=billing worker=2")
    about_another = record("a worker ended", worker=1)
    assert OfWorker(2).filter(about_another)
    assert TextFormatter().format(about_another).endswith(" worker=1")
