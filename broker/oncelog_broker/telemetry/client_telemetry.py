"""The client metrics of one broker: the subscriptions in the cluster image, the clients, and the metric values that
clients have pushed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from oncelog_broker.metadata.model.image import ClusterImage
from oncelog_broker.telemetry.client_instances import ClientInstances
from oncelog_broker.telemetry.pushed_series import PushedSeries
from oncelog_broker.telemetry.subscriptions import subscriptions_in
from oncelog_protocol.errors import ErrorCode


class ClientTelemetry:
    """The subscriptions to client metrics, the clients, and the pushed series of one broker. `follow` must be called
    with each new cluster image, before requests use this image.
    """

    def __init__(self, image: ClusterImage) -> None:
        self.instances = ClientInstances()
        self.pushed = PushedSeries()
        self.pushes: Counter[ErrorCode] = Counter()
        """Number of PushTelemetry requests since the start, by error code."""
        self._configs: Mapping[str, Mapping[str, str]] = {}
        self.follow(image)

    def follow(self, image: ClusterImage) -> None:
        """Replace the subscriptions if the cluster image has different subscriptions."""
        if image.client_metrics is not self._configs:
            self._configs = image.client_metrics
            self.instances.subscribe(subscriptions_in(self._configs))
