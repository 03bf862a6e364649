"""The coordinators of this broker, for groups, transactions and share partitions, created when they are first needed.

The coordinators are a third of the broker's modules, and importing them takes a quarter of a start in an empty
directory. So they are imported and created when the cluster image first contains an internal topic, whose partitions
this broker may have to load, or when a request first needs a coordinator. Until then there are no groups and no
transactions.

Start the coordinators after the replicas follow the cluster image, because a coordinator loads the partitions that this
broker leads. Close the coordinators before the replicas, because coordinators append to replicas.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from oncelog_broker.assembly.membership import ClusterMembership
from oncelog_broker.assembly.replication import Replication
from oncelog_broker.assembly.settings import Settings
from oncelog_broker.coordinator.internal_topics import tell_deleted_by_age
from oncelog_broker.metadata.model.image import ClusterImage
from oncelog_broker.metadata.topic_names import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from oncelog_broker.runtime.host import Host

if TYPE_CHECKING:
    from oncelog_broker.assembly.running_coordinators import RunningCoordinators
    from oncelog_broker.coordinator.group.coordinator import GroupCoordinator
    from oncelog_broker.coordinator.transaction.coordinator import TransactionCoordinator
    from oncelog_broker.sharing.share_partitions import SharePartitions


class Coordinators:
    """The coordinators of this broker. From `start` on, they follow the cluster image."""

    def __init__(self, settings: Settings, membership: ClusterMembership, replication: Replication, host: Host) -> None:
        self._settings = settings
        self._membership = membership
        self._replication = replication
        self._host = host
        self.present: RunningCoordinators | None = None
        """The coordinators; None until they are needed, so there are no groups and no transactions yet."""
        self._is_closed = False

    @classmethod
    def start(
        cls, settings: Settings, membership: ClusterMembership, replication: Replication, host: Host
    ) -> Coordinators:
        """Follow the cluster image. If the present image contains an internal topic, load the partitions that this
        broker leads.
        """
        made = cls(settings, membership, replication, host)
        tell_deleted_by_age(None, membership.metadata.image)
        made._on_image(ClusterImage(""), membership.metadata.image)
        membership.metadata.subscribe(made._on_later_image)
        replication.replicas.subscribe(made._on_opened)
        return made

    @property
    def running(self) -> RunningCoordinators:
        """The coordinators. The first use imports, creates and starts them; after `close` it creates coordinators that
        lead no partition, and therefore answer NOT_COORDINATOR.
        """
        if self.present is None:
            from oncelog_broker.assembly.running_coordinators import RunningCoordinators

            self.present = RunningCoordinators(self._settings, self._membership, self._replication, self._host)
            if not self._is_closed:
                self.present.start(self._membership.metadata.image)
        return self.present

    @property
    def groups(self) -> GroupCoordinator:
        return self.running.groups

    @property
    def transactions(self) -> TransactionCoordinator:
        return self.running.transactions

    @property
    def share_partitions(self) -> SharePartitions:
        return self.running.share_partitions

    @property
    def loading(self) -> str | None:
        """An internal topic with partitions that are being loaded; None if no partition is being loaded."""
        if self.present is not None:
            for topic, runtime in (
                (CONSUMER_OFFSETS, self.present.groups.runtime),
                (TRANSACTION_STATE, self.present.transactions.runtime),
            ):
                if runtime.is_loading:
                    return topic
        return None

    def close(self) -> None:
        """Stop the group, transaction and share coordinators; waiting requests get an error."""
        self._is_closed = True
        if self.present is not None:
            self.present.close()

    def _on_later_image(self, old: ClusterImage, new: ClusterImage) -> None:
        tell_deleted_by_age(old, new)
        self._on_image(old, new)

    def _on_image(self, old: ClusterImage, new: ClusterImage) -> None:
        if self.present is not None:
            self.present.on_image(old, new)
        elif any(topic in new.topics for topic in (CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE)):
            self.running.groups  # noqa: B018 - the property creates the coordinators, which load the present image

    def _on_opened(self, topics: Collection[str]) -> None:
        if self.present is not None:
            self.present.on_opened(topics)
