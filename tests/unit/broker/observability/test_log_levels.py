"""The levels of loggers can be shown and changed while the process runs."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from oncelog_broker.observability.log_levels import LEVELS, ROOT, level_of, logger_names, set_levels

NAME = "oncelog_broker.test_log_levels.child"


@pytest.fixture(autouse=True)
def levels_as_before() -> Iterator[None]:
    root, logger = logging.getLogger(), logging.getLogger(NAME)
    before = root.level
    yield
    root.setLevel(before)
    logger.setLevel(logging.NOTSET)


@pytest.mark.parametrize("level", LEVELS)
def test_a_level_that_was_set_is_shown(level: str) -> None:
    set_levels({NAME: level})
    assert level_of(NAME) == level


def test_a_logger_without_a_level_inherits_that_of_the_root() -> None:
    set_levels({ROOT: "ERROR", NAME: "DEBUG"})
    assert (level_of(ROOT), level_of(NAME)) == ("ERROR", "DEBUG")
    set_levels({NAME: None})
    assert level_of(NAME) == "ERROR"


@pytest.mark.parametrize(("number", "shown"), [(25, "INFO"), (35, "WARN"), (100, "FATAL"), (3, "TRACE")])
def test_a_number_between_two_levels_is_shown_as_the_level_below(number: int, shown: str) -> None:
    logging.getLogger(NAME).setLevel(number)
    assert level_of(NAME) == shown


def test_names_have_the_root_and_each_logger_but_no_placeholder() -> None:
    names = logger_names()
    assert {ROOT, NAME} <= set(names)
    assert "oncelog_broker.test_log_levels" not in names
    assert names == sorted(names)
