"""The hostile clients that are known to hurt today, and how. A client that hurts nobody any more leaves this list."""

from __future__ import annotations

from collections.abc import Mapping

PENDING: Mapping[str, str] = {
    "pipelined metadata": "full garbage collections of a broker with 2,000 new partitions: 30 ms",
    "many records behind zstd, to a compacted topic": "records are unpacked and walked on the loop: 10 s",
    "a time looked up in a batch of many records": "records are unpacked on the loop, all of them: 4 s",
    "one group's offsets, many times": "one answer for each mention, in one piece: 3 s, 550 MB",
    "one partition's producers, many times": "one answer for each mention, in one piece: 7 s, 1.1 GB",
    "one transaction described many times": "one answer for each mention, in one piece: 1.5 s",
    "many topics to be made": "an answer of 38 MB in one piece of fresh memory: 300 ms",
    "a fetch session of unknown partitions": "the plan of its 45,000 partitions is made in one piece: 21 ms",
    "members with large metadata": "metadata is in no budget: 90 MB for each request, kept",
    "a pattern that backtracks": "the broker stands still for ever",
    "a protocol named twice": "an assertion fails, and the group is lost",
    "a transaction over many partitions": "each write waits behind a record of all partitions: 200 ms",
}
"""By name: what is seen."""
