"""Parses `sasl.jaas.config`: `<login module> required <option>="<value>" ...;`, as in Kafka. Pure."""

from __future__ import annotations

import re
from typing import Final

_HEAD: Final = re.compile(r"\s*(?P<module>[\w.$]+)\s+(?:required|requisite|sufficient|optional)\b", re.IGNORECASE)
_OPTION: Final = re.compile(
    r"\s*(?P<name>[\w.@+-]+)\s*=\s*(?:\"(?P<quoted>(?:\\.|[^\"\\])*)\"|(?P<plain>[^\s\";]+))", re.DOTALL
)


def jaas_module(text: str) -> str:
    """Return the name of the login module. Raises ValueError, whose message does not contain the text."""
    return _head(text)["module"]


def jaas_options(text: str) -> dict[str, str]:
    """Return the options of the login module. Raises ValueError, whose message does not contain values."""
    head = _head(text)
    options = {}
    position = head.end()
    while match := _OPTION.match(text, position):
        quoted = match["quoted"]
        options[match["name"]] = match["plain"] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
        position = match.end()
    if text[position:].strip() != ";":
        raise ValueError(f'after {len(options)} options: expected name="value", or a semicolon at the end')
    return options


def _head(text: str) -> re.Match[str]:
    head = _HEAD.match(text)
    if head is None:
        raise ValueError("expected a login module, `required` and options, and a semicolon at the end")
    return head
