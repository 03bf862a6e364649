"""Where a follower truncates its log to agree with the leader's: by leader epochs, never by comparing offsets alone.
Pure.

The leader's Fetch response names the last epoch that the two logs may share, and its end offset in the leader's log
(`diverging_epoch`). If two logs agree up to an offset, the next batch agrees if its epoch is equal, since an epoch has
one leader, which assigned each offset once (KIP-101). So the follower truncates to the lower of the two ends of that
epoch; if it does not have the epoch, its next fetch asks about an older one (KIP-279).
"""

from __future__ import annotations

from typing import Final

from oncelog_broker.log.leader_epochs import LeaderEpochs

NO_EPOCH_IN_COMMON: Final = -1
"""Sent by a leader whose log is empty, with the offset at which it is empty."""


def truncation_offset(epochs: LeaderEpochs, log_end_offset: int, diverging_epoch: int, end_offset: int) -> int:
    """The offset to truncate to. `epochs` and `log_end_offset` are the follower's, the other arguments the leader's
    response."""
    if diverging_epoch == NO_EPOCH_IN_COMMON:
        return min(end_offset, log_end_offset)
    own_epoch, own_end = epochs.end_offset_for_epoch(diverging_epoch, log_end_offset)
    if own_end < 0:  # the follower has no epochs, or only newer ones
        return min(end_offset, log_end_offset)
    if own_epoch != diverging_epoch:
        # The follower does not have that epoch: its records after the next lower epoch are from leaders that the
        # leader's log does not know.
        return min(own_end, log_end_offset)
    return min(own_end, end_offset, log_end_offset)
