"""Lets a member disturb its own group, and measures the effect on the timers of other groups."""

from __future__ import annotations

import threading
import time

from raw_client import frame

from hostile.client import HostileClient
from hostile.scene import Scene, fetch_of_all
from oncelog_protocol.api import ApiKey
from oncelog_protocol.messages.find_coordinator import CoordinatorType
from oncelog_protocol.messages.join_group import JoinGroupRequest

POLLERS = 10
MAX_WAIT_MS = 100
HUNG_SECONDS = 5.0
SESSION_MS = 1000
TIMERS_END_SECONDS = 1.5 * SESSION_MS / 1000


class Poller(threading.Thread):
    """Sends Fetch requests for partitions without records, so that the broker responds only after MAX_WAIT_MS."""

    def __init__(self, scene: Scene, stopped: threading.Event) -> None:
        super().__init__(daemon=True)
        self.scene = scene
        self.stopped = stopped
        self.polls = self.hung = 0

    def run(self) -> None:
        data = fetch_of_all("empty", 1, max_wait_ms=MAX_WAIT_MS)
        client = self.scene.client(HUNG_SECONDS)
        while not self.stopped.is_set():
            try:
                client.exchange(data)
                self.polls += 1
            except TimeoutError:
                self.hung += 1
                client = self.scene.client(HUNG_SECONDS)


def _join(group: str, instance: str, *protocols: str) -> bytes:
    metadata = bytes(10)
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=SESSION_MS,
        member_id="",
        group_instance_id=instance,
        protocol_type="consumer",
        protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=metadata) for name in protocols],
    )
    return frame(request, ApiKey.JOIN_GROUP, 5)


def _prepare(scene: Scene, _: int) -> None:
    scene.make_topic("empty")
    scene.find_coordinator("group-0", CoordinatorType.GROUP)


def _same_protocol_twice(scene: Scene, _: None, groups: int) -> str:
    stopped = threading.Event()
    pollers = [Poller(scene, stopped) for _ in range(POLLERS)]
    for poller in pollers:
        poller.start()
    for number in range(groups):
        scene.client().exchange(_join(f"group-{number}", "honest", "range"))
    for number in range(groups):
        scene.client().socket.sendall(_join(f"group-{number}", "evil", "range", "range"))
    began = time.monotonic()
    time.sleep(TIMERS_END_SECONDS)
    stopped.set()
    for poller in pollers:
        poller.join(2 * HUNG_SECONDS)
    errors = scene.broker.log.read_text().count("AssertionError")
    hung = sum(poller.hung for poller in pollers)
    assert not hung, f"{hung} delayed fetches hung"
    assert not errors, f"{errors} failed assertions in the broker"
    polls = sum(poller.polls for poller in pollers)
    return f"{groups} groups broken, {polls} delayed fetches in {time.monotonic() - began:.0f} s, none hung"


CLIENTS = (
    HostileClient(
        "a protocol named twice",
        _same_protocol_twice,
        size=30,
        small=10,
        prepare=_prepare,
        settings={"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "100"},
    ),
)
