from __future__ import annotations

from oncelog.consumer.group.heartbeat import PollWatch


def test_polls_are_late_when_nothing_changes_for_too_long() -> None:
    watch = PollWatch(max_interval_s=5)
    watch.look((1, None), now=100)
    watch.look((1, None), now=104)
    assert not watch.is_late(105)
    assert watch.is_late(105.1)
    watch.look((1, 7), now=106)  # the next record of an iteration
    assert not watch.is_late(111)
    watch.look((2, 7), now=111)
    assert not watch.is_late(116)
