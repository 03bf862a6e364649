"""The fast code paths (lanes) for AddPartitionsToTxn, transactional Produce and EndTxn behave like the general
handlers. Two transaction coordinators, one of them without lanes, get the same requests.

Both brokers must send the same bytes, write the same files, count the same metrics, and have the same transactions,
markers and refused sequences. A producer with transactions V1 and one with transactions V2 (KIP-890) send requests over
a connection each.
"""

from __future__ import annotations

import asyncio
import errno
import os
import tempfile
from collections.abc import Iterable
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.transaction_lanes import BEGUN, NEW, OLD, USUAL, World, transaction

from oncelog_protocol.quotas import QuotaKey

names = st.sampled_from([OLD, NEW])
steps = st.sampled_from([0, 0, 0, 0, 0, 1, -1])
indexes = st.sampled_from([(0,), (0,), (0,), (1,), (0, 1), (4,)])
written = st.sampled_from([(0,), (0,), (0,), (1,), (0, 1)])
whole = st.builds(
    lambda name, indexes, commits: transaction(name, indexes, commits=commits), names, written, st.booleans()
)
single = st.one_of(
    st.tuples(st.just("add"), names, indexes, steps),
    st.tuples(st.just("produce"), names, written, st.sampled_from([0, 0, 0, -1, 1]), st.sampled_from([-1, -1, 1, 0])),
    st.tuples(st.just("end"), names, st.booleans(), steps),
)
requests = st.one_of(whole, whole, single.map(lambda step: [step]))
changes = st.one_of(
    st.tuples(st.just("init"), names),
    st.tuples(st.just("encoded_otherwise"), names, st.sampled_from([1, 3, -1, -9])),
    st.tuples(st.just("reconnect"), names, st.sampled_from([0, 2, 3]), st.sampled_from([0, 1, 3, 4, 5])),
    st.tuples(st.just("lead_anew")),
    st.tuples(st.just("resign")),
    st.tuples(st.just("grow")),
    st.tuples(st.just("gain_follower"), st.booleans()),
    st.tuples(st.just("follow")),
    st.tuples(st.just("gate"), st.booleans()),
    st.tuples(st.just("break_disk"), st.sampled_from([errno.ENOSPC, errno.EIO, None])),
    st.tuples(st.just("mark"), names, st.sampled_from([0, 1]), st.sampled_from([0, 1, 9])),
    st.tuples(st.just("make_topic"), st.sampled_from([1, 3, 4])),
    st.tuples(st.just("delete_topic")),
    st.tuples(st.just("verify"), st.booleans()),
    st.tuples(st.just("authorize"), st.sampled_from(["deny", "allow", "allow", "forget", "off"])),
    st.tuples(
        st.just("quota"),
        st.sampled_from([None, 0.001, 5000.0]),
        st.sampled_from(list(QuotaKey)),
        st.sampled_from(["test", "other"]),
    ),
    st.tuples(st.just("advance"), st.sampled_from([0.01, 0.5, 11.0, 61.0])),
    st.tuples(st.just("abort_timed_out")),
)
scripts = st.lists(st.tuples(changes, st.lists(requests, min_size=1, max_size=4)), min_size=1, max_size=8)

REPEATED: list[list[tuple[Any, ...]]] = [
    [("end", name, True, 0), ("end", name, True, -1), ("end", name, False, 0)] for name in (OLD, NEW)
]
REGISTERED: list[tuple[Any, ...]] = [("produce", NEW, (0,), 0), ("end", NEW, True, 0)]
UNREGISTERED: list[tuple[Any, ...]] = [("break_disk", errno.EIO), ("produce", NEW, (0,), 0)]
"""A batch that opens a transaction while the disk of the coordinator fails; the broker times this request."""
OPEN: list[tuple[Any, ...]] = [("add", OLD, (0,), 0), ("produce", OLD, (0,), 0), ("produce", NEW, (0,), 0)]


@settings(examples(60, of=300), suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(scripts)
@example([(("gain_follower", True), [USUAL, [("follow",), *USUAL, ("follow",), *USUAL, ("follow",)]])])
@example([(("gain_follower", True), [OPEN]), (("resign",), [USUAL]), (("lead_anew",), [USUAL, USUAL])])
@example([(("authorize", "allow"), [USUAL, USUAL]), (("authorize", "forget"), [USUAL])])
@example([(("break_disk", errno.ENOSPC), [USUAL]), (("break_disk", None), [USUAL, USUAL])])
@example([(("break_disk", errno.EIO), [USUAL])])
@example([(("grow",), [USUAL] * 3), (("grow",), [USUAL] * 3)])
@example([(("delete_topic",), [USUAL]), (("make_topic", 1), [USUAL, USUAL])])
@example([(("init", OLD), [USUAL]), (("init", NEW), [USUAL] * 3)])
@example([(("mark", OLD, 0, 9), [USUAL]), (("mark", NEW, 0, 9), [USUAL])])
@example([(("verify", False), [[("produce", OLD, (0,), 0)], USUAL]), (("verify", True), [USUAL])])
@example([(("reconnect", OLD, 0, 0), [USUAL] * 4), (("reconnect", NEW, 3, 5), [USUAL] * 4)])
@example([(("init", OLD), [OPEN]), (("advance", 61.0), [[("abort_timed_out",)], USUAL, [("init", OLD)], USUAL])])
@example([(("follow",), [*REPEATED, OPEN, *REPEATED, USUAL])])
@example(
    [
        (
            ("gain_follower", True),
            [[("follow",), ("produce", NEW, (0,), 0, 0), ("follow",), ("produce", NEW, (0,), 0, 0)]],
        ),
    ]
)
@example([(("gate", False), [USUAL]), (("gate", True), [USUAL])])
@example([(("follow",), [[*[("produce", NEW, (0,), 0)] * 4, *REGISTERED, *UNREGISTERED]])])
def test_the_lanes_of_transactions_answer_like_the_usual_way(script: list[tuple[Any, list[Any]]]) -> None:
    asyncio.run(
        _compare([*BEGUN, *(step for change, requests in script for each in ([change], *requests) for step in each)])
    )


async def _compare(steps: Iterable[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory(prefix="oncelog-lanes-") as directory:
        worlds = [World(os.path.join(directory, name), has_lanes=name == "fast") for name in ("fast", "usual")]
        for step, *arguments in steps:
            for world in worlds:
                await world.perform(step, *arguments)
            fast, usual = (world.outcome() for world in worlds)
            for what, value in usual.items():
                assert fast[what] == value, (step, arguments, what)
        fast_files, usual_files = [await world.files() for world in worlds]
        assert fast_files == usual_files
