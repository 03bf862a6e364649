"""For handlers of topics, and of the settings of topics and brokers."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol, TypeAlias

from oncelog_broker.controller.configs import ConfigController
from oncelog_broker.controller.topics import TopicController
from oncelog_broker.replication.replicas import Replicas
from oncelog_broker.server.request.context import RequestContext
from oncelog_broker.server.request.forwarding import ForwardingServices


class TopicServices(ForwardingServices, Protocol):
    """What handlers of topics and settings may reach, beside what all may."""

    replicas: Replicas
    topics: TopicController
    configs: ConfigController

    def create_topic(self, name: str, /) -> Awaitable[None]:
        """Create a topic that nobody asked for by name of an API; see `topic_creation.TopicCreation.create`."""


TopicContext: TypeAlias = RequestContext[TopicServices]
