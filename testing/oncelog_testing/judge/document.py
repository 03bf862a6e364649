"""Converts a history from JSON, and a verdict to JSON. Pure.

    {"transactions": [{"id": "1", "producer": "billing", "end": "committed"}], "sends": [{"producer": "billing",
    "topic": "invoices", "partition": 0, "value": "invoice 1", "transaction": "1", "outcome": "acknowledged", "offset":
    0}], "topics": ["invoices"], "processed": {"source": "orders", "into": "invoices", "made_of": "invoice for (.*)",
    "group_id": "billing"}, "apart_from": ["TWICE"]}

All fields are optional. The order of `sends` is the order in which each producer has sent them. `end` is committed,
aborted or unknown; `outcome` is acknowledged, failed or unknown; the default of both fields is unknown. The value of a
record is text in the field `value`, or base64 in the field `value_base64`; no two sends may have the same value.
`topics` are read when the history is judged. `processed`: each record of `source` must have one record in `into`;
`made_of` is a regular expression that matches the text of an output, and its first group is the text of the input.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, TypeVar

from oncelog_testing.history.events import ANY_PARTITION, NOT_YET, End, Outcome, Place, Transaction
from oncelog_testing.history.recorder import History
from oncelog_testing.history.verdict import Verdict
from oncelog_testing.history.violation import Kind

E = TypeVar("E", Outcome, End)

FIELDS = ("transactions", "sends", "topics", "processed", "apart_from")


@dataclass(frozen=True, slots=True)
class Processed:
    """The topics from which a group reads and to which it writes."""

    source: str
    into: str
    made_of: Callable[[bytes], bytes | None]
    group_id: str | None


@dataclass(frozen=True, slots=True)
class Case:
    """The fields of a request other than `sends` and `transactions`: the topics to read, and the kinds of violations
    that are allowed.
    """

    topics: tuple[str, ...]
    processed: Processed | None
    apart_from: Collection[Kind]


def record(document: Any, history: History) -> Case:
    """Record the sends and transactions of a document in `history`. Raises ValueError that names the wrong field."""
    if not isinstance(document, dict):
        raise ValueError("a history is a JSON object")
    unknown = document.keys() - set(FIELDS)
    if unknown:
        raise ValueError(f"unknown field {min(unknown)!r}: there are {', '.join(FIELDS)}")
    transactions: dict[str, Transaction] = {}
    for each in _list(document, "transactions"):
        transactions[_text(each, "id")] = history.transaction(_text(each, "producer"))
    for each in _list(document, "sends"):
        _send(each, history, transactions)
    # record the ends of transactions after all sends, because a transaction ends after its sends
    for each in _list(document, "transactions"):
        end = _one_of(End, each, "end")
        if end is not End.UNKNOWN:
            history.ended(transactions[_text(each, "id")], end)
    return Case(
        tuple(_topic(each) for each in _list(document, "topics")),
        _processed(document.get("processed")),
        {_kind(each) for each in _list(document, "apart_from")},
    )


def shown(verdict: Verdict) -> dict[str, Any]:
    """Return a verdict as JSON."""
    return {
        "exactly_once": verdict.is_exactly_once,
        "verdict": str(verdict),
        "violations": [{"kind": each.kind.name, "what": each.what} for each in verdict.violations],
    }


def _send(fields: Any, history: History, transactions: dict[str, Transaction]) -> None:
    transaction = None
    if fields.get("transaction") is not None:
        name = _text(fields, "transaction")
        if name not in transactions:
            raise ValueError(f"a send is in the transaction {name!r}, which is not among `transactions`")
        transaction = transactions[name]
    place = Place(_text(fields, "topic"), _number(fields, "partition", ANY_PARTITION))
    send = history.send(_text(fields, "producer"), place, _value(fields), transaction)
    match _one_of(Outcome, fields, "outcome"):
        case Outcome.ACKNOWLEDGED:
            history.acknowledged(send, _number(fields, "offset", NOT_YET))
        case Outcome.FAILED:
            history.failed(send)


def _processed(fields: Any) -> Processed | None:
    if fields is None:
        return None
    if not isinstance(fields, dict):
        raise ValueError("`processed` is an object")
    try:
        pattern = re.compile(_text(fields, "made_of"), re.DOTALL)
    except re.error as error:
        raise ValueError(f"`made_of` is not a regular expression: {error}") from None
    if pattern.groups < 1:
        raise ValueError("`made_of` has no group, which would be the text of the input")

    def made_of(output: bytes) -> bytes | None:
        found = pattern.fullmatch(output.decode(errors="replace"))
        return None if found is None else found[1].encode()

    group_id = fields.get("group_id")
    return Processed(
        _text(fields, "source"), _text(fields, "into"), made_of, None if group_id is None else str(group_id)
    )


def _list(document: dict[str, Any], name: str) -> list[Any]:
    found = document.get(name, [])
    if not isinstance(found, list) or (name in FIELDS[:2] and not all(isinstance(each, dict) for each in found)):
        raise ValueError(f"`{name}` is a list" + (" of objects" if name in FIELDS[:2] else ""))
    return found


def _text(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or not value:
        raise ValueError(f"`{name}` is a text that is not empty, not {value!r:.50}")
    return value


def _number(fields: dict[str, Any], name: str, default: int) -> int:
    value = fields.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"`{name}` is a number from 0 on, not {value!r:.50}")
    return value


def _value(fields: dict[str, Any]) -> bytes:
    if "value_base64" in fields:
        try:
            return b64decode(_text(fields, "value_base64"), validate=True)
        except ValueError as error:
            raise ValueError(f"`value_base64`: {error}") from None
    return _text(fields, "value").encode()


def _one_of(kind: type[E], fields: dict[str, Any], name: str) -> E:
    value = fields.get(name, "unknown")
    try:
        return kind(value)
    except ValueError:
        raise ValueError(f"`{name}` is one of {', '.join(each.value for each in kind)}, not {value!r:.50}") from None


def _topic(name: Any) -> str:
    if not isinstance(name, str):
        raise ValueError(f"`topics` are names, not {name!r:.50}")
    return name


def _kind(name: Any) -> Kind:
    if not isinstance(name, str) or name not in Kind.__members__:
        raise ValueError(f"`apart_from` has {name!r:.50}: there are {', '.join(Kind.__members__)}")
    return Kind[name]
