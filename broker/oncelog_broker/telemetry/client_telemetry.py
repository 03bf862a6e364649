"""The client metrics of one broker: subscriptions from the cluster image, clients, and what the clients pushed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from oncelog_broker.metadata.model.image import ClusterImage
from oncelog_broker.telemetry.client_instances import ClientInstances
from oncelog_broker.telemetry.pushed_series import PushedSeries
from oncelog_broker.telemetry.subscriptions import subscriptions_in
from oncelog_protocol.errors import ErrorCode


class ClientTelemetry:
    """Subscriptions, clients and series of one broker. `follow` passes it each new image before requests use it."""

    def __init__(self, image: ClusterImage) -> None:
        self.instances = ClientInstances()
        self.pushed = PushedSeries()
        self.pushes: Counter[ErrorCode] = Counter()
        """Number of PushTelemetry requests since the start, by error code."""
        self._configs: Mapping[str, Mapping[str, str]] = {}
        self.follow(image)

    def follow(self, image: ClusterImage) -> None:
        """Replace the subscriptions if the image has others."""
        if image.client_metrics is not self._configs:
            self._configs = image.client_metrics
            self.instances.subscribe(subscriptions_in(self._configs))
