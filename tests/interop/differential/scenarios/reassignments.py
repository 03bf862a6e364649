"""Compares AlterPartitionReassignments and ListPartitionReassignments: requests that are refused, and requests for the
present state. With one broker no partition can move.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.interop.differential.calls import create
from tests.interop.differential.scenario import scenario
from tests.interop.differential.side import NODE_ID, Side

from oncelog_protocol.api import ApiKey


@scenario
def reassigning(side: Side) -> None:
    create(side, "a", 2)

    def ask(label: str, replicas: Sequence[int] | None, *, name: str = "a", index: int = 0, version: int = 1) -> None:
        partition = {"partition_index": index, "replicas": None if replicas is None else list(replicas)}
        asked = {"topics": [{"name": side.own(name) if name else "", "partitions": [partition]}], "timeout_ms": 5000}
        side.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, version, asked, label)

    for version in (0, 1):
        ask("as it is", [NODE_ID], version=version)
        ask("nothing to cancel", None, version=version)
    for label, replicas in (("nobody", []), ("broker twice", [NODE_ID, NODE_ID]), ("unknown broker", [9])):
        ask(label, replicas)
    ask("unknown topic", [NODE_ID], name="none")
    ask("no name", [NODE_ID], name="")
    ask("unknown partition", [NODE_ID], index=7)
    ask("cancelled, unknown partition", None, index=7)
    asked = {"topics": [], "timeout_ms": 5000}
    side.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 1, asked, "no topics")


@scenario
def listing_reassignments(side: Side) -> None:
    create(side, "a")
    of_one = [{"name": side.own("a"), "partition_indexes": [0, 7]}]
    of_none = [{"name": side.own("none"), "partition_indexes": [0]}]
    for label, topics in (("all", None), ("none", []), ("one", of_one), ("unknown", of_none)):
        side.ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, {"topics": topics, "timeout_ms": 5000}, label)
