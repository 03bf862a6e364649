"""What a member says of the records that it has. Pure.

All of a request's batches for a share partition are looked at before anything changes: if one offset is not the
member's, nothing of them counts. Offsets below the start offset are done, so nothing is said of them any more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from oncelog_broker.coordinator.share.state_batches import DeliveryState
from oncelog_broker.sharing.share_partition import SharePartition, released_state
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.share_fetch import AcknowledgeType

BECOMES: Final = {
    AcknowledgeType.GAP: DeliveryState.ARCHIVED,
    AcknowledgeType.ACCEPT: DeliveryState.ACKNOWLEDGED,
    AcknowledgeType.REJECT: DeliveryState.ARCHIVED,
}


class AckBatch(NamedTuple):
    """The offsets from `first` to `last`, both included. `types` has one AcknowledgeType for all of them, or one for
    each."""

    first: int
    last: int
    types: Sequence[int]


class AckTerms(NamedTuple):
    """Who says it. `deadline` is that of renewed locks (monotonic seconds); `may_renew` is whether the request, and the
    group, allow it."""

    owner: str
    deadline: float
    delivery_limit: int
    renews: bool
    """Whether the request says that it renews locks."""
    may_renew: bool
    """Whether the group allows that."""


def check_batches(batches: Sequence[AckBatch], *, renews: bool) -> None:
    """Check batches without knowing the share partition. Raises KafkaError INVALID_REQUEST."""
    previous = -1
    for first, last, types in batches:
        if not previous < first <= last:
            raise _invalid(f"batches of acknowledgements must ascend and not overlap: {first}-{last} after {previous}")
        if len(types) not in (1, last - first + 1):
            raise _invalid(f"{len(types)} acknowledge types for the offsets {first}-{last}")
        for number in types:
            if not AcknowledgeType.GAP <= number <= AcknowledgeType.RENEW:
                raise _invalid(f"no acknowledge type: {number}")
            if number == AcknowledgeType.RENEW and not renews:
                raise _invalid("a lock is renewed by a request that does not say so")
        previous = last


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


def acknowledge(partition: SharePartition, batches: Sequence[AckBatch], terms: AckTerms) -> int:
    """Begin the transitions that a member asks for. Returns the number of the transition, for `SharePartition.finish`;
    0 if nothing has to be written. Raises KafkaError INVALID_REQUEST, INVALID_RECORD_STATE, with nothing changed."""
    runs = partition.runs
    check_batches(batches, renews=terms.renews)
    wanted = [part for batch in batches for part in _parts(batch, runs.start)]
    for first, last, number in wanted:
        if last >= runs.end:
            raise _invalid(f"offset {last} was not handed out yet")
        if number == AcknowledgeType.RENEW and not terms.may_renew:
            raise _not_acquired("acquisition locks of this group are not renewed")
        for run in runs.over(first, last):
            if run.state is not DeliveryState.ACQUIRED:
                raise _not_acquired(f"offsets {run.first}-{run.last} are not acquired")
            if run.owner != terms.owner:
                raise _not_acquired(f"offsets {run.first}-{run.last} are at another member")
            if run.becomes is not None:
                raise _not_acquired(f"offsets {run.first}-{run.last} were acknowledged already")
    transition = 0
    for first, last, number in wanted:
        for run in runs.cut(first, last):
            if number == AcknowledgeType.RENEW:
                run.deadline = max(run.deadline, terms.deadline)
                continue
            transition = transition or partition.new_transition()
            run.transition = transition
            if number == AcknowledgeType.RELEASE:
                run.becomes = released_state(run.deliveries, terms.delivery_limit)
            else:
                run.becomes = BECOMES[AcknowledgeType(number)]
            partition.outbox.append(run.to_batch())
    runs.join()
    return transition


def _not_acquired(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD_STATE, message)


def _parts(batch: AckBatch, start: int) -> Iterator[tuple[int, int, int]]:
    """First and last offset, and the type, of the parts of a batch that are alike; without what is below `start`."""
    first, last, types = batch
    if len(types) == 1:
        if last >= start:
            yield max(first, start), last, types[0]
        return
    begin = max(first, start)
    for offset in range(begin, last + 1):
        if offset == last or types[offset + 1 - first] != types[offset - first]:
            yield begin, offset, types[offset - first]
            begin = offset + 1
