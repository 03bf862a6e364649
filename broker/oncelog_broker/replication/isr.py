"""The rules of the in-sync replicas (ISR): how many are needed, and how far they have come. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping


def needed_in_sync(min_insync_replicas: int, replicas: int) -> int:
    """How many replicas must be in sync for acks=all: never more than there are, as in Kafka since 4.0 (KIP-966)."""
    return min(min_insync_replicas, replicas)


def replicated_offset(log_end_offset: int, leader_id: int, isr: Collection[int], ends: Mapping[int, int]) -> int | None:
    """The offset below which every replica in sync has everything; None while one of them has not told how far it is.

    `log_end_offset` is the leader's, `ends` those of the followers that have fetched in this leader epoch.
    """
    followers = [ends.get(broker_id) for broker_id in isr if broker_id != leader_id]
    known = [end for end in followers if end is not None]
    return min([log_end_offset, *known]) if len(known) == len(followers) else None
