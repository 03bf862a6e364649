"""Reads options as Spark passes them: as strings, whose names may have any case. Pure.

Spark ignores an unknown option silently; oncelog refuses it and names the nearest known option.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any, Final, TypeVar

from oncelog_pipeline.options.connector import connector_options

T = TypeVar("T")

SPARKS_OWN: Final = ("path", "checkpointLocation", "queryName")
"""Options that Spark itself adds to the user's options of a source or sink."""
PREFIX: Final = "kafka."
CLIENT_KEYS: Final = frozenset(each.name for each in connector_options() if each.name.startswith(PREFIX))

_SIZE: Final = re.compile(r"\s*(\d+)\s*([kmgt]?)b?\s*")
_SHIFTS: Final = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_TIME: Final = re.compile(r"\s*(\d+)\s*(us|ms|s|m|min|h|d)?\s*")
_SECONDS: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


class OptionError(ValueError):
    """An option is unknown, missing or has an invalid value; the message says what to write."""


class Options:
    """The options of one reader or writer. `known` are the names of the options that the methods read; the names of all
    other options must begin with `kafka.`, and `kafka` contains them.
    """

    def __init__(self, given: Mapping[str, str], known: Iterable[str]) -> None:
        """Raises OptionError for an unknown name: one that is not in `known`, is not an option of Spark itself, and
        does not begin with `kafka.`.
        """
        names = {name.lower(): name for name in (*known, *SPARKS_OWN)}
        self.kafka: dict[str, str] = {}
        self._values: dict[str, str] = {}
        for name, value in given.items():
            lower = name.lower()
            if lower.startswith(PREFIX):
                self.kafka[lower] = value
            elif lower in names:
                self._values[names[lower]] = value
            else:
                hint = _hint(lower, names)
                raise OptionError(f"unknown option {name!r}{hint}")

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def text(self, name: str, default: T) -> str | T:
        return self._values.get(name, default)

    def choice(self, name: str, choices: Iterable[str], default: str) -> str:
        """Return the option's value in lower case. Raises OptionError if it is none of the choices."""
        allowed = list(choices)
        value = self._values.get(name, default).lower()
        if value not in allowed:
            raise OptionError(f"{name}={self._values[name]!r}: must be one of {', '.join(allowed)}")
        return value

    def flag(self, name: str, default: bool) -> bool:
        """Return the option as a bool. Raises OptionError if the value is neither true nor false."""
        return self.choice(name, ("true", "false"), str(default).lower()) == "true"

    def number(self, name: str, default: T, *, least: int = 1) -> int | T:
        """Return the option as an int. Raises OptionError if the value is no whole number, or less than `least`."""
        value = self._values.get(name)
        return default if value is None else number(name, value, least)

    def size(self, name: str, default: T) -> int | T:
        """Return the option as a size in bytes. Spark's spellings are accepted: 1000, 100k, 10m, 1g. Raises
        OptionError.
        """
        value = self._values.get(name)
        if value is None:
            return default
        match = _SIZE.fullmatch(value.lower())
        if match is None or not int(match[1]):
            raise OptionError(f"{name}={value!r}: must be a size such as 1000, 100k, 10m or 1g")
        return int(match[1]) << _SHIFTS[match[2] or ""]

    def seconds(self, name: str, default: float) -> float:
        """Return the option as a time in seconds. Spark's spellings are accepted: 15m, 10s, 200ms; a number without a
        unit is in milliseconds. Raises OptionError.
        """
        value = self._values.get(name)
        if value is None:
            return default
        match = _TIME.fullmatch(value.lower())
        if match is None:
            raise OptionError(f"{name}={value!r}: must be a time such as 15m, 10s or 200ms")
        return int(match[1]) * _SECONDS[match[2] or "ms"]

    def parsed(self, name: str, parse: Callable[[str], T]) -> T:
        """Return what `parse` returns for the value of this option, which must be set. Raises OptionError."""
        value = self._values[name]
        try:
            return parse(value)
        except ValueError as error:
            raise OptionError(f"{name}: {error}") from error


def _hint(lower: str, names: Mapping[str, str]) -> str:
    """Return a suggestion for an unknown name, as part of an error message: the name with the prefix `kafka.` if that
    is a key of Kafka's clients, otherwise a similar name.
    """
    if PREFIX + lower in CLIENT_KEYS:
        return f": did you mean {PREFIX + lower!r}? Keys of Kafka's clients begin with {PREFIX!r}"
    near = get_close_matches(lower, names, n=1)
    return f": did you mean {names[near[0]]!r}?" if near else ""


def number(name: str, value: str, least: int) -> int:
    """Raises OptionError."""
    if not re.fullmatch(r"\s*-?\d+\s*", value) or int(value) < least:
        raise OptionError(f"{name}={value!r}: must be a whole number from {least} on")
    return int(value)


def as_setting(name: str, value: str, like: Any) -> Any:
    """Parse the value of an option to the type of `like`, the option's default: bool, number or str. Raises
    OptionError.
    """
    if isinstance(like, bool):
        if value.lower() not in ("true", "false"):
            raise OptionError(f"{name}={value!r}: must be true or false")
        return value.lower() == "true"
    if isinstance(like, int):
        return number(name, value, 0)
    return value
