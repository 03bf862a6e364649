"""Compares how members of share groups fetch and acknowledge records: ShareFetch and ShareAcknowledge (KIP-932)."""

from __future__ import annotations

import time
from typing import Final

from tests.interop.differential.batches import batch
from tests.interop.differential.calls import (
    add_partitions,
    create,
    delete_records,
    end_transaction,
    fill,
    produce,
    transactional_producer,
)
from tests.interop.differential.scenario import scenario
from tests.interop.differential.share_members import (
    ACCEPT,
    EMPTY_MS,
    FILLED_MS,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    ShareMember,
    configure,
    describe_share_offsets,
    reader,
    share_group,
)
from tests.interop.differential.side import Side

A: tuple[str, int] = ("a", 0)
MARKERS: Final = frozenset({3, 8})
"""The offsets of markers in the scenario `isolation`."""


def filled(side: Side, *batches: int, member: str = "m", **configs: str | int) -> ShareMember:
    """Return a member of a new share group that reads topic "a", which has batches with these numbers of records."""
    create(side, "a")
    share_group(side, **configs)
    fill(side, "a", [batch(records) for records in batches])
    return reader(side, {"a": [0]}, member)


@scenario
def bad_fetches(side: Side) -> None:
    """Send ShareFetch and ShareAcknowledge requests that name no group, no member, or unknown ones."""
    member = filled(side, 1)
    where = {"a": [0]}
    for version in (1, 2):
        for name, value, label in (
            ("group_id", None, "null group"),
            ("group_id", "", "empty group"),
            ("member_id", None, "null member"),
            ("member_id", "", "empty member"),
            ("member_id", "m" * 37, "member id of 37 characters"),
        ):
            member.fetch(label, where, epoch=0, wait_ms=EMPTY_MS, version=version, **{name: value})
            member.acknowledge(label, {A: [(0, 0, [ACCEPT])]}, epoch=0, version=version, **{name: value})
    ShareMember(side, "none", "m").fetch("unknown group", where, wait_ms=EMPTY_MS)
    ShareMember(side, "g", "stranger").fetch("stranger", where, wait_ms=EMPTY_MS)
    ShareMember(side, "g", "another").acknowledge("stranger", {A: [(0, 0, [ACCEPT])]}, epoch=1)


@scenario
def sessions(side: Side) -> None:
    """Open, continue, replace and close a share session, with right and with wrong epochs."""
    member = filled(side, 2)
    member.fetch("no session, epoch 1", {"a": [0]}, epoch=1)
    member.fetch("no session, close", epoch=-1)
    member.acknowledge("no session", {A: [(0, 0, [ACCEPT])]}, epoch=1)
    member.acknowledge("no session, close", {A: [(0, 0, [ACCEPT])]}, epoch=-1)
    member.fetch("open with an acknowledgement", acknowledged={A: [(0, 0, [ACCEPT])]}, epoch=0)
    member.fetch("open", {"a": [0]})
    member.fetch("same epoch again", {"a": [0]}, epoch=0, wait_ms=EMPTY_MS)
    member.fetch("next epoch", wait_ms=EMPTY_MS)
    member.fetch("epoch too high", epoch=7, wait_ms=EMPTY_MS)
    member.fetch("epoch too low", epoch=1, wait_ms=EMPTY_MS)
    member.fetch("epoch -2", epoch=-2, wait_ms=EMPTY_MS)
    member.acknowledge("epoch too high", {A: [(0, 0, [ACCEPT])]}, epoch=7)
    member.acknowledge("epoch 0", {A: [(0, 0, [ACCEPT])]}, epoch=0)
    member.acknowledge("epoch -2", {A: [(0, 0, [ACCEPT])]}, epoch=-2)
    member.acknowledge("right epoch", {A: [(0, 0, [ACCEPT])]})
    member.close()
    member.close("close again")
    member.fetch("released by closing", {"a": [0]})


@scenario
def partitions(side: Side) -> None:
    """Fetch partitions that do not exist, and add partitions to a session and forget them."""
    create(side, "a", 2)
    create(side, "b")
    share_group(side)
    member = reader(side, {"a": [0, 1], "b": [0]})
    ShareMember(side, "g", "other").fetch("only an unknown topic", {"none": [0]}, wait_ms=EMPTY_MS)
    member.fetch("unknown partition", {"a": [9]}, wait_ms=EMPTY_MS)
    member.fetch("forget it", forgotten={"a": [9]}, wait_ms=EMPTY_MS)
    fill(side, "a", [batch(2)], 0)
    member.fetch("first", {"a": [0]})
    fill(side, "a", [batch(3)], 1)
    member.fetch("second", {"a": [1]})
    fill(side, "b", [batch(1)])
    member.fetch("not in the session", wait_ms=EMPTY_MS)
    member.fetch("in the session", {"b": [0]})
    fill(side, "b", [batch(1)])
    member.fetch("forgotten", forgotten={"b": [0]}, wait_ms=EMPTY_MS)
    member.fetch("forgotten again", forgotten={"b": [0], "a": [1]}, wait_ms=EMPTY_MS)
    member.acknowledge(
        "all", {("a", 0): [(0, 1, [ACCEPT])], ("a", 1): [(0, 2, [ACCEPT])], ("b", 0): [(0, 0, [ACCEPT])]}
    )
    member.acknowledge("unknown partitions", {("a", 9): [(0, 0, [ACCEPT])], ("none", 0): [(0, 0, [ACCEPT])]})
    member.close()
    describe_share_offsets(side, "g", label="at last")


@scenario
def not_assigned(side: Side) -> None:
    """Fetch and acknowledge records of a partition that the member is not assigned."""
    create(side, "a")
    create(side, "b")
    share_group(side)
    fill(side, "a", [batch(1)])
    fill(side, "b", [batch(1)])
    member = reader(side, {"a": [0]})
    member.fetch("not subscribed", {"b": [0]}, wait_ms=1000)
    member.acknowledge("not subscribed", {("b", 0): [(0, 0, [ACCEPT])]})
    stranger = ShareMember(side, "g", "stranger")
    stranger.fetch("not a member", {"a": [0]})
    stranger.acknowledge("not a member", {A: [(0, 0, [ACCEPT])]})


@scenario
def each_type(side: Side) -> None:
    """Accept, release, reject and skip records, singly and in batches, in both versions."""
    member = filled(side, 6, 4)
    member.fetch("all", {"a": [0]}, version=1)
    member.acknowledge("each type", {A: [(0, 5, [ACCEPT, RELEASE, REJECT, GAP, ACCEPT, RELEASE])]}, version=1)
    describe_share_offsets(side, "g", label="after each type")
    member.fetch("the released", version=1)
    member.acknowledge("whole batch", {A: [(6, 9, [RELEASE])]})
    member.fetch("whole batch again", version=2)
    member.fetch("two batches", acknowledged={A: [(1, 1, [ACCEPT]), (5, 9, [ACCEPT])]}, wait_ms=EMPTY_MS)
    describe_share_offsets(side, "g", label="all done")
    fill(side, "a", [batch(2)])
    member.fetch("next", version=2)
    member.fetch("released in a fetch", acknowledged={A: [(10, 11, [RELEASE, ACCEPT])]})
    member.fetch("accepted in the last fetch", acknowledged={A: [(10, 10, [ACCEPT])]}, epoch=-1, wait_ms=0)
    describe_share_offsets(side, "g", label="closed")


INVALID: Final[dict[str, list[tuple[int, int, list[int]]]]] = {
    "last before first": [(5, 4, [ACCEPT])],
    "negative first": [(-1, 4, [ACCEPT])],
    "overlapping": [(0, 4, [ACCEPT]), (4, 6, [ACCEPT])],
    "overlapping more": [(0, 4, [ACCEPT]), (3, 6, [ACCEPT])],
    "descending": [(5, 6, [ACCEPT]), (0, 1, [ACCEPT])],
    "no types": [(0, 4, [])],
    "two types for five": [(0, 4, [ACCEPT, ACCEPT])],
    "six types for five": [(0, 4, [ACCEPT] * 6)],
    "type 4": [(0, 4, [RENEW])],
    "type 5": [(0, 4, [5])],
    "type -1": [(0, 4, [-1])],
    "one bad type": [(0, 1, [ACCEPT, 9])],
    "beyond the acquired": [(8, 12, [ACCEPT])],
    "not acquired": [(10, 12, [ACCEPT])],
    "beyond the log": [(30, 31, [ACCEPT])],
    "no batches": [],
}
"""Acknowledgements for a partition of which offsets 0-9 are acquired, and 10-19 are available."""


@scenario
def invalid_acknowledgements(side: Side) -> None:
    """Acknowledge offsets, types and batches that are not valid."""
    create(side, "a")
    fill(side, "a", [batch(10), batch(10)])
    nothing = {"max_bytes": 0, "max_records": 0, "wait_ms": 0, "min_bytes": 0}
    for number, (label, batches) in enumerate(INVALID.items()):
        group = f"g{number}"
        share_group(side, group)
        member = reader(side, {"a": [0]}, group=group)
        member.fetch(f"before {label}", {"a": [0]}, max_records=10)
        for version in (1, 2):
            member.acknowledge(label, {A: batches}, version=version)
        member.fetch(label, acknowledged={A: batches}, **nothing)


@scenario
def repeated_acknowledgements(side: Side) -> None:
    """Acknowledge records that were acknowledged or released before."""
    member = filled(side, 10, 10)
    member.fetch("first batch", {"a": [0]}, max_records=10)
    member.acknowledge("accept", {A: [(0, 3, [ACCEPT])]})
    member.acknowledge("accept again", {A: [(0, 3, [ACCEPT])]})
    member.acknowledge("partly again", {A: [(2, 5, [ACCEPT])]})
    member.acknowledge("reject a later one", {A: [(8, 8, [REJECT])]})
    member.acknowledge("accept the rejected", {A: [(8, 8, [ACCEPT])]})
    member.acknowledge("release some", {A: [(6, 7, [RELEASE])]})
    member.acknowledge("accept the released", {A: [(6, 7, [ACCEPT])]})
    member.acknowledge("accept the last", {A: [(9, 9, [ACCEPT])]})
    member.fetch("the released again", max_records=1)
    member.acknowledge("accept them", {A: [(6, 7, [ACCEPT])]})
    describe_share_offsets(side, "g", label="at last")


@scenario
def deliveries(side: Side) -> None:
    """Release a record until the limit of deliveries archives it."""
    member = filled(side, 1, 1, share_delivery_count_limit=3)
    member.fetch("first delivery", {"a": [0]}, max_records=1)
    for number in range(2, 5):
        member.acknowledge(f"release {number}", {A: [(0, 0, [RELEASE])]})
        member.fetch(f"delivery {number}", max_records=1)
        describe_share_offsets(side, "g", label=f"delivery {number}")
    member.acknowledge("archived one", {A: [(0, 0, [ACCEPT])]})


@scenario
def bad_record_in_a_batch(side: Side) -> None:
    """Release a whole batch again and again; the broker delivers ever smaller parts of it."""
    member = filled(side, 8, 2)
    member.fetch("first delivery", {"a": [0]})
    released: list[tuple[int, int]] = [(0, 9)]
    for number in range(2, 14):
        member.acknowledge(f"release {number}", {A: [(first, last, [RELEASE]) for first, last in released]})
        answer = member.fetch(f"fetch {number}")
        if not answer.responses:
            break
        found = answer.responses[0].partitions[0].acquired_records
        released = [(one.first_offset, one.last_offset) for one in found]
    describe_share_offsets(side, "g", label="at last")


@scenario
def limits(side: Side) -> None:
    """Limit the number of records, in both acquire modes, and the number of records per entry."""
    member = filled(side, 5, 5, 5, 5)
    member.fetch("at most 3, batches", {"a": [0]}, max_records=3, share_acquire_mode=0)
    member.fetch("at most 3, exactly", max_records=3, share_acquire_mode=1)
    member.fetch("at most 3, exactly, again", max_records=3, share_acquire_mode=1)
    member.fetch("at most 7, batches", max_records=7, share_acquire_mode=0)
    member.close()
    member.fetch("entries of 2", {"a": [0]}, batch_size=2)
    member.close()
    member.fetch("entries of 5, version 1", {"a": [0]}, batch_size=5, version=1)
    member.close()
    member.fetch("few bytes", {"a": [0]}, max_bytes=10)


@scenario
def odd_limits(side: Side) -> None:
    """Limit records and bytes to zero, to negative numbers, and by an unknown acquire mode."""
    create(side, "a")
    fill(side, "a", [batch(5), batch(5)])
    odd: dict[str, dict[str, int]] = {
        "no records": {"max_records": 0},
        "negative number": {"max_records": -1},
        "exactly none": {"max_records": 0, "share_acquire_mode": 1},
        "entries of 0": {"batch_size": 0},
        "entries of -1": {"batch_size": -1},
        "no bytes": {"max_bytes": 0},
        "negative bytes": {"max_bytes": -1},
        "mode 2": {"share_acquire_mode": 2},
        "negative wait": {"wait_ms": -1},
        "many bytes wanted": {"min_bytes": 1 << 20},
    }
    for number, (label, limit) in enumerate(odd.items()):
        group = f"g{number}"
        share_group(side, group)
        member = reader(side, {"a": [0]}, group=group)
        member.fetch("load", {"a": [0]}, max_records=1)
        member.fetch(label, **{"wait_ms": EMPTY_MS, **limit})


@scenario
def record_locks(side: Side) -> None:
    """Acquire as many records as the group may have in flight."""
    member = filled(side, *[50] * 4, share_partition_max_record_locks=100)
    member.fetch("first", {"a": [0]}, max_records=60)
    member.fetch("second", max_records=60, wait_ms=EMPTY_MS)
    member.fetch("one released", acknowledged={A: [(7, 7, [RELEASE])]})
    member.fetch("the first accepted", acknowledged={A: [(0, 9, [ACCEPT])]}, wait_ms=EMPTY_MS)
    member.fetch("half accepted", acknowledged={A: [(10, 49, [ACCEPT])]}, wait_ms=EMPTY_MS)
    member.fetch("more accepted", acknowledged={A: [(50, 99, [ACCEPT])]})


@scenario
def lock_timeouts(side: Side) -> None:
    """Let acquisition locks expire."""
    member = filled(side, 3, share_record_lock_duration_ms=1000)
    member.fetch("acquired", {"a": [0]})
    member.fetch("after the timeout", wait_ms=FILLED_MS)
    member.acknowledge("accept", {A: [(0, 2, [ACCEPT])]})
    fill(side, "a", [batch(2)])
    member.fetch("two more")
    other = reader(side, {"a": [0]}, "other")
    other.fetch("taken over", {"a": [0]}, wait_ms=FILLED_MS)
    member.acknowledge("too late", {A: [(3, 4, [ACCEPT])]})
    other.acknowledge("in time", {A: [(3, 4, [ACCEPT])]})


@scenario
def renewals(side: Side) -> None:
    """Renew acquisition locks."""
    member = filled(side, 3, share_record_lock_duration_ms=1500)
    member.fetch("acquired", {"a": [0]})
    nothing = {"wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0}
    member.fetch("renew and fetch", acknowledged={A: [(0, 0, [RENEW])]}, is_renew_ack=True)
    member.fetch("renew without saying so", acknowledged={A: [(0, 0, [RENEW])]}, **nothing)
    member.acknowledge("renew without saying so", {A: [(0, 0, [RENEW])]})
    member.acknowledge("renew", {A: [(0, 0, [RENEW])]}, is_renew_ack=True)
    time.sleep(1.0)  # two thirds of the lock duration
    member.fetch("renew in a fetch", acknowledged={A: [(0, 1, [RENEW])]}, is_renew_ack=True, **nothing)
    time.sleep(1.0)  # the lock of the record that was not renewed has expired
    member.fetch("not renewed")
    member.acknowledge("renewed", {A: [(0, 1, [ACCEPT])]})
    member.acknowledge("renew and accept", {A: [(2, 2, [ACCEPT])]}, is_renew_ack=True)
    member.acknowledge("renew the accepted", {A: [(0, 0, [RENEW])]}, is_renew_ack=True)
    configure(side, "g", share_renew_acknowledge_enable="false")
    fill(side, "a", [batch(1)])
    member.fetch("one more")
    member.acknowledge("renewals are off", {A: [(3, 3, [RENEW])]}, is_renew_ack=True)


@scenario
def two_members(side: Side) -> None:
    """Let two members share the records of one partition."""
    first = filled(side, 2, 2, 2, member="first")
    second = reader(side, {"a": [0]}, "second")
    first.fetch("first", {"a": [0]}, max_records=1)
    second.fetch("second", {"a": [0]}, max_records=1)
    second.acknowledge("records of the first", {A: [(0, 1, [ACCEPT])]})
    second.acknowledge("records of both", {A: [(0, 3, [ACCEPT])]})
    first.fetch("rest", max_records=1)
    first.close()
    second.fetch("released by the first", acknowledged={A: [(2, 3, [ACCEPT])]})
    second.leave("leave")
    second.acknowledge("after leaving", {A: [(0, 1, [ACCEPT])]})
    describe_share_offsets(side, "g", label="at last")


@scenario
def lost_connection(side: Side) -> None:
    """Close the connection of a session: the records are released."""
    first = filled(side, 2, member="first")
    first.connection = "first"
    first.fetch("first", {"a": [0]})
    second = reader(side, {"a": [0]}, "second")
    side.disconnect("first")
    second.fetch("released", {"a": [0]})
    first.fetch("the session is gone", wait_ms=EMPTY_MS)
    second.acknowledge("accept", {A: [(0, 1, [ACCEPT])]})


@scenario
def deleted_records(side: Side) -> None:
    """Delete records that are acquired, available, or released."""
    member = filled(side, 5, 5)
    member.fetch("first batch", {"a": [0]}, max_records=5)
    delete_records(side, "a", 3)
    member.acknowledge("deleted ones", {A: [(0, 1, [ACCEPT])]})
    describe_share_offsets(side, "g", label="acquired below the log start")
    member.acknowledge("the others", {A: [(2, 4, [RELEASE])]})
    member.fetch("again")
    delete_records(side, "a", 10)
    member.acknowledge("all deleted", {A: [(3, 9, [ACCEPT])]})
    fill(side, "a", [batch(2)])
    member.fetch("new records")
    describe_share_offsets(side, "g", label="at last")


@scenario
def offset_resets(side: Side) -> None:
    """Start at the end, at the beginning, and at a time."""
    create(side, "a")
    fill(side, "a", [batch(2, timestamp=1000), batch(2)])
    for group, reset in (("latest", "latest"), ("earliest", "earliest"), ("time", "by_duration:PT1H")):
        share_group(side, group, share_auto_offset_reset=reset)
        member = reader(side, {"a": [0]}, group=group)
        member.fetch(reset, {"a": [0]}, wait_ms=EMPTY_MS if reset == "latest" else FILLED_MS)
        describe_share_offsets(side, group, label=reset)
    fill(side, "a", [batch(1)])
    late = ShareMember(side, "latest", "m", session_epoch=1)
    late.fetch("latest, next record")


@scenario
def isolation(side: Side) -> None:
    """Read records of open, committed and aborted transactions, in both isolation levels."""
    create(side, "a")
    levels = "read_uncommitted", "read_committed"
    members = []
    for level in levels:
        share_group(side, level, share_isolation_level=level)
        members.append(reader(side, {"a": [0]}, group=level))
    producer = transactional_producer(side, "t")
    sequence = 0
    for label, commits in (("committed", True), ("aborted", False)):
        add_partitions(side, producer, {"a": [0]})
        fill(side, "a", [batch(1)])
        produce(side, "a", batch(2, producer, sequence), transactional_id="t")
        sequence += 2
        everything, committed = members
        everything.fetch(f"uncommitted, to be {label}", {"a": [0]})
        committed.fetch(f"before the open transaction, to be {label}", {"a": [0]})
        end_transaction(side, producer, commits)
        fill(side, "a", [batch(1)])
        for level, member in zip(levels, members, strict=True):
            note_deliveries(side, f"{label}, {level}", member, last=4 if commits else 9)
    for level, member in zip(levels, members, strict=True):
        member.acknowledge(f"the first record, {level}", {A: [(0, 0, [ACCEPT])]})
        describe_share_offsets(side, level, label=level)


def note_deliveries(side: Side, label: str, member: ShareMember, last: int) -> None:
    """Let a member fetch and accept records until it has got the offset `last`; record the offsets of the records that
    are no markers. Apache Kafka also delivers the offsets of markers and of aborted records.
    """
    found: set[int] = set()
    while last not in found:
        answer = member.quiet_fetch()
        acquired = [one for topic in answer.responses for p in topic.partitions for one in p.acquired_records]
        found |= {offset for one in acquired for offset in range(one.first_offset, one.last_offset + 1)}
    side.note(label, sorted(found - MARKERS))
