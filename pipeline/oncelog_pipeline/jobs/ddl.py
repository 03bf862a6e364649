"""Checks without Spark whether the text of a schema is Spark's DDL, such as `customer STRING, amount DECIMAL(10, 2) NOT
NULL`. Pure.

The check runs when a job file is read, and covers the structure and the names of types. Spark's own parser checks the
schema fully when the job runs.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import Final, NamedTuple

NUMBERS: Final = frozenset(
    ("tinyint", "byte", "smallint", "short", "int", "integer", "bigint", "long", "float", "real", "double")
)
TYPES: Final = NUMBERS | {
    *("decimal", "dec", "numeric", "boolean", "string", "char", "character", "varchar", "binary", "variant", "void"),
    *("date", "time", "timestamp", "timestamp_ltz", "timestamp_ntz", "interval", "geography", "geometry"),
    *("array", "map", "struct"),
}
UNITS: Final = frozenset(
    ("year", "month", "day", "hour", "minute", "second", "to", "with", "without", "local", "time", "zone", "collate")
)
"""Words that may follow a type: interval day to second, timestamp without time zone."""
CONTAINERS: Final = {"array": 1, "map": 2}
"""For each container type, the number of types between < and >."""
_TOKEN: Final = re.compile(r"\s*(?:(?P<name>\w+|`(?:[^`]|``)*`)|(?P<text>'[^']*'|\"[^\"]*\")|(?P<mark>[<>(),:]))")


class BadDdl(ValueError):
    """A schema that Spark cannot parse: the message says where and why."""


class _Token(NamedTuple):
    text: str
    is_name: bool


def check_ddl(text: str) -> None:
    """Raise BadDdl if the text is neither a list of columns nor a type."""
    tokens = _tokens(text)
    if not tokens:
        raise BadDdl("is empty")
    # A single type, such as ARRAY<INT>, begins with the name of a type, followed by <, ( or the end of the text. A
    # column's name is never followed by one of these.
    alone = tokens[0].text.lower() in TYPES and (len(tokens) == 1 or tokens[1].text in "<(")
    parser = _Parser(tokens)
    if alone:
        parser.type()
    else:
        parser.columns("")
    parser.end()


def _tokens(text: str) -> list[_Token]:
    found, position = [], 0
    text = text.rstrip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise BadDdl(f"has {text[position:].strip()[:1]!r} where a name, a type or a comma is expected")
        found.append(_Token(match[0].strip(), match["name"] is not None))
        position = match.end()
    return found


class _Parser:
    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._at = 0

    def columns(self, closing: str) -> None:
        while True:
            self._column()
            if self._skip(closing):
                return
            if self._at == len(self._tokens) and not closing:
                return
            self._expect(",")

    def _column(self) -> None:
        name = self._name("the name of a column")
        self._skip(":")
        if self._at == len(self._tokens) or not self._tokens[self._at].is_name:
            raise BadDdl(f"has no type after the column {name!r}")
        self.type()
        if self._skip("not"):
            self._expect("null")
        if self._skip("comment"):
            self._at += 1  # skip the text of the comment

    def type(self) -> None:
        name = self._name("a type")
        kind = name.lower()
        if kind not in TYPES:
            near = get_close_matches(kind, TYPES, n=1)
            raise BadDdl(f"has {name!r}, which is not a type" + (f": did you mean {near[0].upper()}?" if near else ""))
        if kind == "struct":
            self._expect("<")
            if not self._skip(">"):
                self.columns(">")
        elif kind in CONTAINERS:
            self._expect("<")
            for index in range(CONTAINERS[kind]):
                if index:
                    self._expect(",")
                self.type()
            self._expect(">")
        elif self._skip("("):
            while not self._skip(")"):
                if self._at == len(self._tokens):
                    raise BadDdl("ends where ')' is expected")
                self._at += 1
        while self._at < len(self._tokens) and self._tokens[self._at].text.lower() in UNITS:
            self._at += 1 + (self._tokens[self._at].text.lower() == "collate")  # skip the name of the collation

    def end(self) -> None:
        if self._at < len(self._tokens):
            raise BadDdl(f"has {self._tokens[self._at].text!r} where it should end")

    def _name(self, what: str) -> str:
        if self._at == len(self._tokens):
            raise BadDdl(f"ends where {what} is expected")
        token = self._tokens[self._at]
        if not token.is_name:
            raise BadDdl(f"has {token.text!r} where {what} is expected")
        self._at += 1
        return token.text

    def _skip(self, text: str) -> bool:
        if not text or self._at == len(self._tokens) or self._tokens[self._at].text.lower() != text:
            return False
        self._at += 1
        return True

    def _expect(self, text: str) -> None:
        if not self._skip(text):
            told = "ends" if self._at == len(self._tokens) else f"has {self._tokens[self._at].text!r}"
            raise BadDdl(f"{told} where {text!r} is expected")
