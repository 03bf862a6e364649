"""A share consumer's acknowledgements for one partition: how the consumer groups them into batches, and when it sends
them.
"""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.share.acknowledgements import Acknowledgements, batches_of
from oncelog_protocol.messages.share_fetch import AcknowledgeType

ACCEPT, RELEASE, REJECT, RENEW = (
    AcknowledgeType.ACCEPT,
    AcknowledgeType.RELEASE,
    AcknowledgeType.REJECT,
    AcknowledgeType.RENEW,
)


@given(st.dictionaries(st.integers(0, 40), st.sampled_from([ACCEPT, RELEASE, REJECT])))
def test_batches_state_each_offset_once_and_neighbours_together(said: dict[int, AcknowledgeType]) -> None:
    batches = batches_of(said)
    stated = {}
    for first, last, types in batches:
        assert len(types) in (1, last - first + 1)
        for offset in range(first, last + 1):
            stated[offset] = types[0] if len(types) == 1 else types[offset - first]
    assert stated == said
    assert all(left.last + 1 < right.first for left, right in pairwise(batches))


def test_one_type_for_a_whole_batch_is_stated_once() -> None:
    assert batches_of({3: ACCEPT, 4: ACCEPT, 5: ACCEPT}) == [(3, 5, (ACCEPT,))]
    assert batches_of({3: ACCEPT, 4: REJECT, 9: ACCEPT}) == [(3, 4, (ACCEPT, REJECT)), (9, 9, (ACCEPT,))]


def test_a_long_gap_between_records_takes_one_type() -> None:
    """One type per offset would be more than a broker accepts in one request."""
    gap = dict.fromkeys(range(2, 200_000), AcknowledgeType.GAP)
    said = {0: ACCEPT, 1: REJECT, **gap, 200_000: ACCEPT}
    assert batches_of(said) == [
        (0, 1, (ACCEPT, REJECT)),
        (2, 199_999, (AcknowledgeType.GAP,)),
        (200_000, 200_000, (ACCEPT,)),
    ]


def test_a_record_is_acknowledged_once_but_may_be_renewed_before() -> None:
    acks = Acknowledgements()
    acks.acquired([1, 2])
    acks.say(1, RENEW)
    assert acks.unsaid == {1, 2}
    assert acks.take_renewals() == {1: RENEW}
    acks.say(1, ACCEPT)
    with pytest.raises(ValueError, match="offset 1 was acknowledged already"):
        acks.say(1, RELEASE)
    with pytest.raises(ValueError, match="is not this consumer's"):
        acks.say(7, ACCEPT)
    assert acks.take() == {1: ACCEPT}
    assert acks.is_empty


def test_an_acknowledgement_takes_the_place_of_a_renewal_that_was_not_sent() -> None:
    acks = Acknowledgements()
    acks.acquired([1])
    acks.say(1, RENEW)
    acks.say(1, REJECT)
    assert acks.take_renewals() == {}
    assert acks.take() == {1: REJECT}


def test_acknowledgements_that_were_not_sent_are_sent_later_unless_there_are_newer_ones() -> None:
    acks = Acknowledgements()
    acks.acquired([1, 2])
    acks.accept_all()
    unsent = acks.take()
    acks.acquired([2])
    acks.say(2, RELEASE)
    acks.put_back(unsent)
    assert acks.take() == {1: ACCEPT, 2: RELEASE}
