"""How far the high watermark may advance. Pure."""

from __future__ import annotations

from collections.abc import Iterable


def replicated_offset(log_end_offset: int, follower_ends: Iterable[int | None]) -> int | None:
    """The offset below which every in-sync replica has all records; None while one of them has not reported its log
    end.

    `log_end_offset` is the leader's. `follower_ends` are the log ends of the other replicas in the ISR *or in a
    proposed ISR*: until a proposal is answered, the controller may have either ISR, and may elect a leader from it.
    """
    end = log_end_offset
    for follower_end in follower_ends:
        if follower_end is None:
            return None
        end = min(end, follower_end)
    return end


def high_watermark_of_follower(own: int, leaders: int, log_end_offset: int) -> int:
    """The high watermark of a follower whose leader is at `leaders`: at most its own log end, and never lower than
    before."""
    return max(own, min(leaders, log_end_offset))


def at_start(checkpointed: int, log_start_offset: int, log_end_offset: int) -> int:
    """The high watermark of a replica at startup, from the last checkpoint. Records above it may be on this replica
    alone."""
    return max(log_start_offset, min(checkpointed, log_end_offset))
