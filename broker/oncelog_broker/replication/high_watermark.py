"""The rule of the high watermark: where it may stand. Pure."""

from __future__ import annotations

from collections.abc import Iterable


def replicated_offset(log_end_offset: int, follower_ends: Iterable[int | None]) -> int | None:
    """The offset below which every replica in sync has everything; None while one of them has not told how far it is.

    `log_end_offset` is the leader's. `follower_ends` are those of all other replicas that are in sync *or may have
    become so*: while an ISR that was proposed is not answered, the controller may have any of both for the true one,
    and may elect a leader from it.
    """
    end = log_end_offset
    for follower_end in follower_ends:
        if follower_end is None:
            return None
        end = min(end, follower_end)
    return end


def high_watermark_of_follower(own: int, leaders: int, log_end_offset: int) -> int:
    """Where a follower's stands, which hears that the leader's is at `leaders`: it never vouches for what it does not
    have, and never takes back what it vouched for."""
    return max(own, min(leaders, log_end_offset))


def at_start(checkpointed: int, log_start_offset: int, log_end_offset: int) -> int:
    """Where that of a replica stands which was closed, or killed, when `checkpointed` was last noted. What lies between
    it and the log's end is perhaps on this replica alone."""
    return max(log_start_offset, min(checkpointed, log_end_offset))
