"""Where a follower cuts its log so that it agrees with the leader's: by leader epochs, never by numbers. Pure.

The leader's answer to a fetch names the last epoch that it may have in common with the follower, and where that epoch
ends in its log (`diverging_epoch`). Of logs that agree up to an offset, the next batch agrees if its epoch is the same,
since an epoch has one leader, and that gave each offset once (KIP-101). So the follower cuts where that epoch ends on
either side; where it lacks the epoch, the next fetch asks about an older one (KIP-279).
"""

from __future__ import annotations

from typing import Final

from oncelog_broker.log.leader_epochs import LeaderEpochs

NO_EPOCH_IN_COMMON: Final = -1
"""A leader whose log is empty answers so, with where it is empty."""


def truncation_offset(epochs: LeaderEpochs, log_end_offset: int, diverging_epoch: int, end_offset: int) -> int:
    """The offset to cut at; `epochs` and `log_end_offset` are the follower's, the others the leader's answer."""
    if diverging_epoch == NO_EPOCH_IN_COMMON:
        return min(end_offset, log_end_offset)
    own_epoch, own_end = epochs.end_offset_for_epoch(diverging_epoch, log_end_offset)
    if own_end < 0:  # it has no epochs at all, or only older ones
        return min(end_offset, log_end_offset)
    if own_epoch != diverging_epoch:
        # Ours has no such epoch: what comes after the next lower one that it has is of leaders that the other lacks.
        return min(own_end, log_end_offset)
    return min(own_end, end_offset, log_end_offset)
