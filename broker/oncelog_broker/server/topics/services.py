"""Services for handlers of topics, and of the settings of topics and brokers."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol, TypeAlias

from oncelog_broker.controller.configs import ConfigController
from oncelog_broker.controller.topics import TopicController
from oncelog_broker.replication.replicas import Replicas
from oncelog_broker.server.request.context import RequestContext
from oncelog_broker.server.request.forwarding import ForwardingServices


class TopicServices(ForwardingServices, Protocol):
    """The parts of the broker that handlers of topics and settings may use, in addition to CommonServices."""

    replicas: Replicas
    topics: TopicController
    configs: ConfigController

    def create_topic(self, name: str, /) -> Awaitable[None]:
        """Create an internal topic automatically, and wait until it can be used."""


TopicContext: TypeAlias = RequestContext[TopicServices]
