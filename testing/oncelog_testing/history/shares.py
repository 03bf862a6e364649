"""Checks the deliveries of share groups: no record is lost, and none is delivered after its acceptance was confirmed.

A confirmed acceptance is final. A record without one may be delivered again, to any member, until it was delivered as
often as the group's limit; then it is archived, and only such a record may remain without an acceptance.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from oncelog_testing.history.events import NOT_YET, Delivery, Outcome, Place
from oncelog_testing.history.recorder import History
from oncelog_testing.history.violation import Kind, Violation

__tracebackhide__ = True  # hides this module in the traceback of a failed test


def share_violations(history: History) -> Iterator[Violation]:
    deliveries: defaultdict[tuple[str, Place, int], list[Delivery]] = defaultdict(list)
    for delivery in history.deliveries:
        deliveries[delivery.group, delivery.place, delivery.offset].append(delivery)
    for (group, place, offset), those in deliveries.items():
        where = f"{group} in {place}: the record at {offset}"
        yield from _delivered_again(where, those)
        limit = history.shared.get((group, place))
        most = max(delivery.count for delivery in those)
        if limit is not None and most > limit:
            yield Violation(Kind.DELIVERED_TOO_OFTEN, f"{where} was delivered {most} times, with a limit of {limit}")
    for (group, place), limit in history.shared.items():
        for offset, value in history.final.get(place, ()):
            those = deliveries[group, place, offset]
            is_archived = max((delivery.count for delivery in those), default=0) >= limit
            if not is_archived and all(delivery.accepted == NOT_YET for delivery in those):
                yield Violation(Kind.PASSED_OVER, f"{group} in {place}: {value!r} at {offset}")


def _delivered_again(where: str, deliveries: list[Delivery]) -> Iterator[Violation]:
    """Yield a violation for each delivery after a confirmed acceptance, and for a second confirmed acceptance."""
    confirmed = [delivery for delivery in deliveries if delivery.outcome is Outcome.ACKNOWLEDGED]
    if not confirmed:
        return
    first = min(confirmed, key=lambda delivery: delivery.answered)
    if len(confirmed) > 1:
        members = " and ".join(delivery.member for delivery in confirmed)
        yield Violation(Kind.DELIVERED_AGAIN, f"{where} was accepted by {members}")
    for delivery in deliveries:
        if delivery.received > first.answered:
            told = f"{where} was delivered to {delivery.member} after {first.member} had accepted it"
            yield Violation(Kind.DELIVERED_AGAIN, told)
