"""Waking kazoo's thread never blocks, however many requests wait for a connection to ZooKeeper."""

from __future__ import annotations

import select

import pytest

from oncelog_broker.metadata.stores.zookeeper.wake_ups import WakeUps

MANY = 10_000
"""A number of wake-up bytes that is far larger than the buffer of a socket pair."""


def is_readable(wake_ups: WakeUps) -> bool:
    return bool(select.select([wake_ups], [], [], 0)[0])


def test_each_wake_up_is_received_once() -> None:
    wake_ups = WakeUps()
    assert not is_readable(wake_ups)
    for _ in range(MANY):
        assert wake_ups.send(b"\0") == 1
    for _ in range(MANY):
        assert is_readable(wake_ups)
        assert wake_ups.recv(1) == b"\0"
    assert not is_readable(wake_ups)
    with pytest.raises(BlockingIOError):
        wake_ups.recv(1)
    wake_ups.send(b"\0")
    assert is_readable(wake_ups)
    wake_ups.close()


def test_a_wake_up_is_closed_twice_and_wakes_nobody_afterwards() -> None:
    wake_ups = WakeUps()
    wake_ups.send(b"\0")
    wake_ups.close()
    wake_ups.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        wake_ups.send(b"\0")
