"""Handles a member's acknowledgements of the records that the member has acquired. Pure.

All batches that a request has for a share partition are checked before the state changes. If the member has not
acquired one of the offsets, all these batches are refused. Acknowledgements of offsets below the start offset are
ignored, because these records are acknowledged or archived already.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, islice
from typing import Final, NamedTuple

from oncelog_broker.coordinator.share.state_batches import DeliveryState
from oncelog_broker.sharing.record_runs import Run
from oncelog_broker.sharing.share_partition import SharePartition, released_state
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.share_fetch import AcknowledgeType

BECOMES: Final[dict[int, DeliveryState]] = {
    AcknowledgeType.GAP: DeliveryState.ARCHIVED,
    AcknowledgeType.ACCEPT: DeliveryState.ACKNOWLEDGED,
    AcknowledgeType.REJECT: DeliveryState.ARCHIVED,
}


MAX_BATCHES: Final = 4_000
"""Maximum number of batches, and of ranges of offsets with the same acknowledge type, for one partition in a
request."""
MAX_TYPES: Final = 100_000
"""Maximum number of acknowledge types for one partition in a request. A single acknowledge type may apply to an entire
batch.
"""


class AckBatch(NamedTuple):
    """The acknowledgements for the offsets from `first` to `last`, both included. `types` has one AcknowledgeType for
    all offsets, or one AcknowledgeType for each offset."""

    first: int
    last: int
    types: Sequence[int]


class _Part(NamedTuple):
    """The offsets from `first` to `last`, both included, which have the same AcknowledgeType."""

    first: int
    last: int
    type: int


class AckTerms(NamedTuple):
    """The member that acknowledges, and the rules for its acknowledgements. `deadline` is the new deadline of renewed
    locks (monotonic seconds)."""

    owner: str
    deadline: float
    delivery_limit: int
    renews: bool
    """Whether the request declares that it renews locks."""
    may_renew: bool
    """Whether the group allows members to renew locks."""


def check_batches(batches: Sequence[AckBatch], *, renews: bool) -> None:
    """Check the parts of acknowledgement batches that do not depend on the state of the share partition. Raises
    KafkaError INVALID_REQUEST.
    """
    if sum(len(batch.types) for batch in batches) > MAX_TYPES:
        raise _invalid(f"more than {MAX_TYPES} acknowledge types for one partition: send them in several requests")
    previous = -1
    for first, last, types in batches:
        if not previous < first <= last:
            raise _invalid(f"batches of acknowledgements must ascend and not overlap: {first}-{last} after {previous}")
        if len(types) not in (1, last - first + 1):
            raise _invalid(f"{len(types)} acknowledge types for the offsets {first}-{last}")
        for number in set(types):
            if not AcknowledgeType.GAP <= number <= AcknowledgeType.RENEW:
                raise _invalid(f"unknown acknowledge type: {number}")
            if number == AcknowledgeType.RENEW and not renews:
                raise _invalid("a lock can only be renewed by a request with is_renew_ack")
        previous = last


def check_count(batches: Sequence[object]) -> None:
    """Check the number of batches that a request has for a partition. Raises KafkaError INVALID_REQUEST."""
    if len(batches) > MAX_BATCHES:
        raise _too_many_batches()


def _too_many_batches() -> KafkaError:
    return _invalid(f"more than {MAX_BATCHES} ranges of offsets for one partition: send them in several requests")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


def acknowledge(partition: SharePartition, batches: Sequence[AckBatch], terms: AckTerms) -> int:
    """Begin the change of state that a member's acknowledgements request. Returns the number of the transition (change
    of state), which the caller passes to `SharePartition.finish`; 0 if nothing must be written. Raises KafkaError
    INVALID_REQUEST, INVALID_RECORD_STATE; after an error nothing has changed."""
    runs = partition.runs
    check_batches(batches, renews=terms.renews)
    wanted = list(islice((part for batch in batches for part in _parts(batch, runs.start)), MAX_BATCHES + 1))
    if len(wanted) > MAX_BATCHES:
        raise _too_many_batches()
    if not wanted:
        return 0
    if wanted[-1].last >= runs.end:
        raise _invalid(f"offset {wanted[-1].last} was not delivered yet")
    if not terms.may_renew and any(part.type == AcknowledgeType.RENEW for part in wanted):
        raise _not_acquired("acquisition locks of this group are not renewed")
    for run, _ in _named(runs.runs, wanted):
        if run.state is not DeliveryState.ACQUIRED:
            raise _not_acquired(f"offsets {run.first}-{run.last} are not acquired")
        if run.owner != terms.owner:
            raise _not_acquired(f"offsets {run.first}-{run.last} are acquired by another member")
        if run.becomes is not None:
            raise _not_acquired(f"offsets {run.first}-{run.last} were already acknowledged")
    runs.divide_at(offset for part in wanted for offset in (part.first, part.last + 1))
    transition = 0
    for run, number in _named(runs.runs, wanted):
        partition.counts.said(number, len(run))
        if number == AcknowledgeType.RENEW:
            run.deadline = max(run.deadline, terms.deadline)
            continue
        transition = transition or partition.new_transition()
        run.transition = transition
        if number == AcknowledgeType.RELEASE:
            run.becomes = released_state(run.deliveries, terms.delivery_limit)
            if run.becomes is DeliveryState.ARCHIVED:
                partition.counts.used_up += len(run)
        else:
            run.becomes = BECOMES[number]
        partition.outbox.append(run.to_batch())
    runs.join()
    return transition


def _named(runs: Sequence[Run], parts: Sequence[_Part]) -> Iterator[tuple[Run, int]]:
    """Yield the runs (offsets with the same state) that overlap these ascending parts of a batch, each with the
    acknowledge type of the part. A run with offsets in several parts is yielded several times.
    """
    index = 0
    for first, last, number in parts:
        while runs[index].last < first:
            index += 1
        while index < len(runs) and runs[index].first <= last:
            yield runs[index], number
            if runs[index].last > last:
                break
            index += 1


def _not_acquired(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD_STATE, message)


def _parts(batch: AckBatch, start: int) -> Iterator[_Part]:
    """Yield the parts of a batch: ranges of offsets with the same acknowledge type. Offsets below `start` are left
    out.
    """
    first, last, types = batch
    if len(types) == 1:
        if last >= start:
            yield _Part(max(first, start), last, types[0])
        return
    for number, same in groupby(types):
        end = first + sum(1 for _ in same)
        if end > start:
            yield _Part(max(first, start), end - 1, number)
        first = end
