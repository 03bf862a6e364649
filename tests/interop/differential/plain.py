"""Converts responses to plain data in which equal behaviour of two brokers results in equal values.

Values that a broker generates (producer ids, topic ids, member ids, sessions) become symbols, numbered in the order of
their appearance; fixed words replace the broker's port, its cluster id, and times near the present. Batches become
descriptions of their
headers.
"""

from __future__ import annotations

import time
from operator import attrgetter
from typing import Any

from oncelog_protocol.records.batch import RecordBatch, batches, whole_batches_size
from oncelog_protocol.records.control import read_marker
from oncelog_protocol.schema import OWN_TAGS, FieldSchema, fields_of

NOW_MS = 120_000
MADE_UP_PRODUCER = 2**40
"""Producer ids from this number on are invented by a scenario."""
SHORTEST_MEMBER_ID = 22
"""Member ids that brokers generate are at least this long, because they contain a UUID."""

PRODUCER_IDS = frozenset({"producer_id", "ongoing_txn_producer_id"})
TIMES = frozenset({"log_append_time_ms", "timestamp", "last_timestamp", "transaction_start_time_ms"})
PLACES = frozenset({"cluster_id", "log_dir"})
"""Fields whose values differ between any two brokers."""
ROOM = frozenset({"total_bytes", "usable_bytes"})
UNORDERED = frozenset({"partitions", "subscribed_topic_names", "requested_metrics"})
"""Arrays whose order is arbitrary, since it comes from a hash table."""
UNORDERED_BY = {"credential_infos": "mechanism"}
"""Arrays of structs in arbitrary order, each with the field by which they are sorted here."""
OF_EVERYBODY = {"replica_election_results": "topic"}
"""Arrays that contain all topics if the request names none; topics of other scenarios are removed."""
CUT_BATCH = "a cut batch"


class Symbols:
    """Maps the values that one broker generates within one scenario to symbols, such as "id 1"."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, Any], str] = {}
        self._counts: dict[str, int] = {}

    def name(self, kind: str, value: Any) -> str:
        """Return the symbol of `value`, which is new if the value is seen for the first time."""
        if (kind, value) not in self._known:
            number = self._counts.get(kind, 0)
            self._counts[kind] = number + 1
            self._known[kind, value] = f"{kind} {number}"
        return self._known[kind, value]

    def known(self, kind: str, value: Any, otherwise: str) -> str:
        """Return the symbol of a value, or the argument `otherwise` if the value has no symbol."""
        return self._known.get((kind, value), otherwise)

    def call(self, kind: str, value: Any, name: str) -> None:
        """Set the symbol of a value before the value occurs in a response."""
        self._known[kind, value] = f"{kind} {name}"


class Plainer:
    """Converts the responses of one broker to plain data. `prefix` is the prefix of the scenario's own names."""

    def __init__(self, port: int, prefix: str) -> None:
        self.symbols = Symbols()
        self._port = port
        self._prefix = prefix

    def answer(self, message: Any, version: int) -> dict[str, Any]:
        owner = type(message).__name__
        return {
            field.name: self._value(field, getattr(message, field.name), version, owner)
            for field in fields_of(type(message))
            if version in field.versions and (field.tag or 0) < OWN_TAGS
        }

    def text(self, value: str) -> str:
        return value.replace(self._prefix, "~").replace(f":{self._port}", ":PORT")

    def producer(self, producer_id: int) -> str | int:
        return producer_id if not 0 <= producer_id < MADE_UP_PRODUCER else self.symbols.name("producer", producer_id)

    def _value(self, field: FieldSchema, value: Any, version: int, owner: str) -> Any:
        if value is None:
            return None
        if field.type_name == "records":
            return self._batches(value)
        if field.type_name == "array":
            if field.struct:
                if field.name in UNORDERED_BY:
                    value = sorted(value, key=attrgetter(UNORDERED_BY[field.name]))
                if (name := OF_EVERYBODY.get(field.name)) is not None:
                    value = [one for one in value if getattr(one, name).startswith(self._prefix)]
                return [self.answer(one, version) for one in value]
            return sorted(value) if field.name in UNORDERED else [_hex(one) for one in value]
        if field.type_name == "struct":
            return self.answer(value, version)
        if field.type_name == "uuid":
            return self.symbols.known("topic", bytes(value), "an id") if any(value) else "no id"
        if isinstance(value, str):
            return self._string(field.name, value, owner)
        return self._number(field.name, value) if isinstance(value, int) else _hex(value)

    def _string(self, name: str, value: str, owner: str) -> str:
        if name in PLACES:
            return name
        if name == "member_id" or (name == "leader" and owner == "JoinGroupResponse"):
            return self.symbols.name("member", value) if len(value) >= SHORTEST_MEMBER_ID else value
        return self.text(value)

    def _number(self, name: str, value: int) -> Any:
        if name in PRODUCER_IDS:
            return self.producer(value)
        if name in ROOM:
            return "bytes" if value > 0 else value
        if name == "session_id":
            return "SESSION" if value else 0
        if name == "subscription_id":
            return self.symbols.name("subscription", value)
        if name == "port":
            return "PORT" if value == self._port else value
        if name in TIMES and abs(value - time.time() * 1000) < NOW_MS:
            return "now"
        return value

    def _batches(self, data: Any) -> list[str]:
        """Return one line for each batch, and one more line if the last batch is incomplete."""
        whole = whole_batches_size(data)
        found = [self._batch(one) for one in batches(bytes(data[:whole]))]
        return found if whole == len(data) else [*found, CUT_BATCH]

    def _batch(self, batch: RecordBatch) -> str:
        words = [f"{batch.base_offset}-{batch.base_offset + batch.last_offset_delta}", f"{batch.records_count} records"]
        words.append(f"attributes {batch.attributes:#x} leader epoch {batch.partition_leader_epoch}")
        if batch.producer_id >= 0:
            producer = self.producer(batch.producer_id)
            words.append(f"{producer} epoch {batch.producer_epoch} sequence {batch.base_sequence}")
        if batch.is_control:
            marker = read_marker(batch)
            words.append(marker.control_type.name if marker else "an unknown marker")
        return ", ".join(words)


def _hex(value: Any) -> Any:
    return bytes(value).hex() if isinstance(value, (bytes, bytearray, memoryview)) else value
