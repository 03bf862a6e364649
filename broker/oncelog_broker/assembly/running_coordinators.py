"""The running coordinators of this broker, for groups, transactions and share partitions.

This module imports all coordinators, some 160 modules. `coordinators.py` imports it when the broker first needs a
coordinator.
"""

from __future__ import annotations

from collections.abc import Collection

from oncelog_broker.assembly.membership import ClusterMembership
from oncelog_broker.assembly.replication import Replication
from oncelog_broker.assembly.settings import Settings
from oncelog_broker.coordinator.group.coordinator import GroupCoordinator
from oncelog_broker.coordinator.share.share_coordinator import ShareCoordinator
from oncelog_broker.coordinator.share.share_state_calls import ShareStateCalls
from oncelog_broker.coordinator.transaction.coordinator import TransactionCoordinator
from oncelog_broker.coordinator.transaction.marker_sender import MarkerSender
from oncelog_broker.coordinator.transaction.markers import MarkerAppender
from oncelog_broker.coordinator.transaction.remote_coordinators import RemoteCoordinators
from oncelog_broker.metadata.model.image import ClusterImage
from oncelog_broker.runtime.host import Host
from oncelog_broker.sharing.share_partitions import SharePartitions


class RunningCoordinators:
    """The group, transaction and share coordinators of this broker. They follow cluster images from `start` on."""

    def __init__(self, settings: Settings, membership: ClusterMembership, replication: Replication, host: Host) -> None:
        config, replicas, metadata = settings.current(), replication.replicas, membership.metadata
        self.shares = ShareCoordinator(config, replicas, host)
        self.share_states = ShareStateCalls(settings.node_id, self.shares, replication.peers)
        self.groups = GroupCoordinator(config, replicas, self.share_states, host)
        self.share_partitions = SharePartitions(settings.current, self.share_states, host)
        self.markers = MarkerAppender(replicas, self.groups.runtime, metadata)
        self.transactions = TransactionCoordinator(
            config,
            replicas,
            MarkerSender(settings.node_id, metadata, self.markers, replication.peers, host),
            RemoteCoordinators(replication.peers, host.tasks),
            replication.producer_ids,
            host,
        )

    def start(self, image: ClusterImage) -> None:
        """Load groups, transactions and share partitions from the partitions that this broker leads, and start the
        background work.
        """
        self.on_image(ClusterImage(""), image)
        self.groups.start()
        self.transactions.start()
        self.shares.start()
        self.share_partitions.start()

    def close(self) -> None:
        """Stop the coordinators; waiting requests get an error."""
        self.transactions.close()
        self.groups.close()
        self.shares.close()

    def on_image(self, old: ClusterImage, new: ClusterImage) -> None:
        self.shares.on_image(old, new)
        self.groups.on_image(old, new)
        self.share_partitions.on_image(new)
        self.transactions.on_image(new)

    def on_opened(self, topics: Collection[str]) -> None:
        """Load the coordinators whose state is stored in these topics; called after the logs of the topics' partitions
        were opened.
        """
        for runtime in (self.shares.runtime, self.groups.runtime, self.transactions.runtime):
            runtime.on_opened(topics)
