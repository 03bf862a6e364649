"""Computes how far the high watermark may advance."""

from __future__ import annotations

from collections.abc import Iterable


def replicated_offset(log_end_offset: int, follower_ends: Iterable[int | None]) -> int | None:
    """Return the offset below which every in-sync replica has all records; None while an in-sync replica has not
    reported its log end.

    `log_end_offset` is the leader's log end offset. `follower_ends` are the log ends of the other replicas in the ISR
    *or in a proposed ISR*. The reason: until the controller has responded to a proposal, it may have stored either ISR,
    and may elect a leader from the stored one.
    """
    end = log_end_offset
    for follower_end in follower_ends:
        if follower_end is None:
            return None
        end = min(end, follower_end)
    return end


def high_watermark_of_follower(own: int, leaders: int, log_end_offset: int) -> int:
    """Return the new high watermark of a follower; `leaders` is the high watermark that the leader reported. The result
    is at most the follower's own log end, and not lower than the follower's previous high watermark.
    """
    return max(own, min(leaders, log_end_offset))


def at_start(checkpointed: int, log_start_offset: int, log_end_offset: int) -> int:
    """Return the high watermark of a replica at startup, from the last checkpoint. Records above the high watermark may
    exist only on this replica.
    """
    return max(log_start_offset, min(checkpointed, log_end_offset))
