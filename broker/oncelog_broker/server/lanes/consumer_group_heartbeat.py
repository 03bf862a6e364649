"""The fast lane of ConsumerGroupHeartbeat: serves the heartbeats of members that have reached their target assignment
and report no change, in groups that need no new assignment. The other parts are those of the lane of Heartbeat.
"""

from __future__ import annotations

from typing import Any

from oncelog_broker.coordinator.client import Client
from oncelog_broker.coordinator.group.machine import GroupMachine
from oncelog_broker.coordinator.group.usual_requests import consumer_stay
from oncelog_broker.metadata.membership import feature_levels
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.lanes.heartbeat import HeartbeatLane, Remembered
from oncelog_broker.server.net.connection import BrokerConnection


class ConsumerGroupHeartbeatLane(HeartbeatLane):
    """The fast lane of one connection for one version of ConsumerGroupHeartbeat."""

    __slots__ = ()

    RULE = rules.CONSUMER_HEARTBEAT

    def _may_repeat(self, request: Any, response: Any) -> bool:
        return (
            response.assignment is None
            and response.member_id == request.member_id
            and response.member_epoch == request.member_epoch
            and request.server_assignor is None
            and not request.subscribed_topic_names
            and not request.subscribed_topic_regex
        )

    def _session_seconds(self, connection: BrokerConnection, machine: GroupMachine, known: Remembered) -> float | None:
        services = self._services
        if services.is_clustered and feature_levels.level_in_force(services.image) < feature_levels.CONSUMER_GROUPS:
            return None
        client = Client(known.client_id or "", f"/{connection.client_host}")
        stay = consumer_stay(machine, known.request, client)
        if stay is None:
            return None
        if stay.interval_ms != known.response.heartbeat_interval_ms:
            self._is_known = False  # the handler's response to this request is another one now: remember that response
            return None
        return stay.session_seconds


make_lane = ConsumerGroupHeartbeatLane
"""The constructor of the fast lane. `server/served.py` loads it by this name."""
