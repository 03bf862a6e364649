"""Decides where a follower truncates its log to agree with the leader's log: the decision compares leader epochs and
not only offsets.

The leader's Fetch response contains the last epoch that the two logs may share, and the end offset of that epoch in the
leader's log (`diverging_epoch`). Each epoch has one leader, which assigns each offset once (KIP-101). If two logs are
equal up to an offset, and both continue with a batch of the same epoch, these batches are therefore equal, too. The
follower truncates to the lower of the two logs' end offsets of the last shared epoch. If the follower does not have
that epoch, its next fetch contains an older epoch (KIP-279).
"""

from __future__ import annotations

from typing import Final

from oncelog_broker.log.leader_epochs import LeaderEpochs

NO_EPOCH_IN_COMMON: Final = -1
"""Leader epoch that a leader with an empty log sends, together with the offset of that empty log."""


def truncation_offset(epochs: LeaderEpochs, log_end_offset: int, diverging_epoch: int, end_offset: int) -> int:
    """Return the offset to truncate to. `epochs` and `log_end_offset` are those of the follower's log; the other
    arguments are from the leader's response.
    """
    if diverging_epoch == NO_EPOCH_IN_COMMON:
        return min(end_offset, log_end_offset)
    own_epoch, own_end = epochs.end_offset_for_epoch(diverging_epoch, log_end_offset)
    if own_end < 0:  # truncate everything, because the follower has no epochs, or only newer epochs
        return min(end_offset, log_end_offset)
    if own_epoch != diverging_epoch:
        # The follower does not have the leader's epoch, so its records after the next lower epoch are missing in the
        # leader's log.
        return min(own_end, log_end_offset)
    return min(own_end, end_offset, log_end_offset)
