"""Services for handlers of consumer groups and their offsets."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol, TypeAlias

from oncelog_broker.coordinator.group.coordinator import GroupCoordinator
from oncelog_broker.replication.peers import Peers
from oncelog_broker.replication.replicas import Replicas
from oncelog_broker.server.groups.internal_topic_creations import InternalTopicCreations
from oncelog_broker.server.request.context import CommonServices, RequestContext


class GroupServices(CommonServices, Protocol):
    """The parts of the broker that handlers of consumer groups may use, in addition to CommonServices."""

    internal_topics: InternalTopicCreations
    replicas: Replicas
    peers: Peers

    @property
    def groups(self) -> GroupCoordinator:
        """The group coordinator of this broker."""

    def create_topic(self, name: str, /) -> Awaitable[None]:
        """Create an internal topic automatically, and wait until it can be used."""


GroupContext: TypeAlias = RequestContext[GroupServices]
