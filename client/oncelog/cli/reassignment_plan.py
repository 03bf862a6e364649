"""Builds and parses the plans of `oncelog reassign`, which are JSON in the format of kafka-reassign-partitions. Pure.

    {"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [3, 1]}]}

A plan moves as few replicas as possible: a replica stays on its broker unless that broker is excluded from the plan, or
has more than its share of replicas.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from oncelog.cluster import TopicPartition

Assignment = dict[TopicPartition, tuple[int, ...]]
"""Partition -> its replicas, the preferred leader first."""

VERSION: Final = 1


def to_json(plan: Mapping[TopicPartition, Sequence[int]]) -> str:
    """Return the plan as a document on one line, sorted."""
    partitions = [
        {"topic": partition.topic, "partition": partition.partition, "replicas": list(replicas)}
        for partition, replicas in sorted(plan.items())
    ]
    return json.dumps({"version": VERSION, "partitions": partitions}, separators=(",", ":"))


def from_json(text: str) -> Assignment:
    """Parse a plan of oncelog or of kafka-reassign-partitions (`log_dirs` is allowed if it requests no directory).
    Raises ValueError."""
    try:
        document = json.loads(text)
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from error
    if not isinstance(document, dict) or not isinstance(document.get("partitions"), list):
        raise ValueError('not a plan: {"version": 1, "partitions": [...]} is needed')
    if document.get("version", VERSION) != VERSION:
        raise ValueError(f"a plan of version {document['version']} is not known, only version {VERSION}")
    plan: Assignment = {}
    for entry in document["partitions"]:
        partition, replicas = _entry(entry)
        if partition in plan:
            raise ValueError(f"{partition} is in the plan twice")
        plan[partition] = replicas
    if not plan:
        raise ValueError("the plan has no partitions")
    return plan


def _entry(entry: Any) -> tuple[TopicPartition, tuple[int, ...]]:
    if not isinstance(entry, dict):
        raise ValueError(f"no partition: {entry!r:.80}")
    topic, index, replicas = (entry.get(name) for name in ("topic", "partition", "replicas"))
    if not isinstance(topic, str) or type(index) is not int or not isinstance(replicas, list) or not replicas:
        raise ValueError(f'not {{"topic": ..., "partition": ..., "replicas": [...]}}: {entry!r:.80}')
    if not all(type(node) is int for node in replicas) or len(set(replicas)) != len(replicas):
        raise ValueError(f"replicas are broker ids, each once: {entry!r:.80}")
    if any(directory != "any" for directory in entry.get("log_dirs") or ()):
        raise ValueError(f"directories cannot be chosen: {entry!r:.80}")
    return TopicPartition(topic, index), tuple(replicas)


def topics_from_json(text: str) -> list[str]:
    """Return the topic names in a document in the format of kafka-reassign-partitions' `--topics-to-move-json-file`.
    Raises ValueError.
    """
    try:
        document = json.loads(text)
        return [str(topic["topic"]) for topic in document["topics"]]
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError('not a list of topics: {"topics": [{"topic": "orders"}]} is needed') from error


def spread(
    current: Mapping[TopicPartition, Sequence[int]], brokers: Mapping[int, str | None], replication_factor: int = 0
) -> Assignment:
    """Distribute the partitions over these brokers (id -> rack); a partition keeps its number of replicas, or gets
    `replication_factor`.

    The numbers of replicas of any two brokers differ by at most one, and each broker is preferred leader of an equal
    share of partitions, as far as racks allow. If all brokers have a rack, the replicas of a partition are spread over
    as many racks as possible. Raises ValueError if there are fewer brokers than replicas.
    """
    placing = _Placing(brokers)
    ordered = sorted(current)
    for partition in ordered:
        wanted = replication_factor or len(current[partition])
        if wanted > len(brokers):
            raise ValueError(f"{partition} has {wanted} replicas, which {len(brokers)} brokers cannot hold")
    total = sum(replication_factor or len(current[partition]) for partition in ordered)
    share = -(-total // max(1, len(brokers)))
    placed = {
        partition: placing.keep(current[partition], replication_factor or len(current[partition]), share)
        for partition in ordered
    }
    for partition in ordered:
        placing.fill(placed[partition], replication_factor or len(current[partition]))
    placing.even_out(placed)
    return placing.with_leaders(placed)


class _Placing:
    """Replicas per broker so far, and the rack of each broker."""

    def __init__(self, brokers: Mapping[int, str | None]) -> None:
        known = all(rack is not None for rack in brokers.values())
        self._racks = {node: (rack if known and rack is not None else str(node)) for node, rack in brokers.items()}
        self._held: Counter[int] = Counter(dict.fromkeys(brokers, 0))

    def keep(self, replicas: Sequence[int], wanted: int, share: int) -> list[int]:
        """Return the replicas that stay where they are: replicas on brokers with less than their share, preferably in
        different racks.
        """
        kept: list[int] = []
        number_of_racks = len(set(self._racks.values()))
        for node in replicas:
            if len(kept) == wanted or node not in self._racks or self._held[node] >= share:
                continue
            racks = {self._racks[other] for other in kept}
            if self._racks[node] in racks and wanted - len(kept) <= min(wanted, number_of_racks) - len(racks):
                continue  # further replicas must go to racks without a replica
            kept.append(node)
            self._held[node] += 1
        return kept

    def fill(self, replicas: list[int], wanted: int) -> None:
        """Add missing replicas, preferably in an unused rack, on the broker with the fewest replicas."""
        while len(replicas) < wanted:
            racks = {self._racks[node] for node in replicas}
            node = min(
                (node for node in self._racks if node not in replicas),
                key=lambda node: (self._racks[node] in racks, self._held[node], node),
            )
            replicas.append(node)
            self._held[node] += 1

    def even_out(self, placed: Mapping[TopicPartition, list[int]]) -> None:
        """Move replicas away from the brokers with the most replicas, as long as a move helps."""
        has_moved = True
        while has_moved:
            has_moved = False
            for replicas in placed.values():
                fullest = max(replicas, key=lambda node: (self._held[node], node))
                others = [node for node in self._racks if node not in replicas and self._fits(replicas, fullest, node)]
                emptiest = min(others, key=lambda node: (self._held[node], node), default=fullest)
                if self._held[fullest] - self._held[emptiest] > 1:
                    replicas[replicas.index(fullest)] = emptiest
                    self._held[fullest] -= 1
                    self._held[emptiest] += 1
                    has_moved = True

    def _fits(self, replicas: Sequence[int], leaving: int, coming: int) -> bool:
        """Return whether the partition spans no fewer racks after the move."""
        racks = {self._racks[node] for node in replicas}
        after = {self._racks[coming], *(self._racks[node] for node in replicas if node != leaving)}
        return len(after) >= len(racks)

    def with_leaders(self, placed: Mapping[TopicPartition, list[int]]) -> Assignment:
        """Choose a preferred leader for each partition, and list it first: the first replica whose broker leads less
        than its share of partitions.
        """
        share = -(-len(placed) // max(1, len(self._racks)))
        led: Counter[int] = Counter()
        plan: Assignment = {}
        for partition, replicas in placed.items():
            first = next((node for node in replicas if led[node] < share), None)
            if first is None:
                first = min(replicas, key=lambda node: led[node])
            led[first] += 1
            plan[partition] = (first, *(node for node in replicas if node != first))
        return plan
