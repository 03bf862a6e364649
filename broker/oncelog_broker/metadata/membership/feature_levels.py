"""Checks whether brokers of different releases are compatible, by the level of the feature `oncelog.version`.

Each registration contains the lowest and highest level of its release, as Kafka's registrations do for its features
(KIP-584). The level in force is the highest feature level that all registered brokers support. A new release therefore
behaves like the old release until the last old broker is gone, and also when an old broker returns. A broker joins the
cluster only if it has a feature level in common with each registered broker. The consequences of levels for files are
described in docs/design/compatibility.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from oncelog_broker.metadata import paths
from oncelog_broker.metadata.model.image import Broker, ClusterImage
from oncelog_broker.metadata.model.reader import read_brokers
from oncelog_broker.metadata.stores.store import MetadataStore, NoNode

FEATURE: Final = "oncelog.version"
LOWEST, HIGHEST = 1, 2
"""The lowest and highest level that this release supports. A new level is added when a release sends or writes data
that the previous release would not understand. A level is given up one release after the last release that used it: the
lowest supported level is then raised above it.
"""
CONSUMER_GROUPS: Final = 2
"""The lowest level at which groups of the consumer protocol (KIP-848) are served. A release of level 1 skips the
records of these groups, so a coordinator of that release would lose the groups.
"""
SHARE_GROUPS: Final = 2
"""The lowest level at which share groups (KIP-932) are served; a release of level 1 skips their records, too."""
STREAMS_GROUPS: Final = 2
"""The lowest level at which streams groups (KIP-1071) are served; a release of level 1 skips their records, too."""
BEFORE_LEVELS: Final = (1, 1)
"""The feature levels of a registration that states no levels, because its release is older than feature levels."""


class NoCommonLevel(Exception):
    """The release of this broker and the release of another broker in the cluster have no common level; the message
    says what to do.
    """


def supported() -> Mapping[str, tuple[int, int]]:
    """Return the feature levels that this release supports, for the registration of this broker."""
    return {FEATURE: (LOWEST, HIGHEST)}


def levels_of(broker: Broker) -> tuple[int, int]:
    """Return the lowest and the highest feature level that a broker supports."""
    return broker.features.get(FEATURE, BEFORE_LEVELS)


def level_in_force(image: ClusterImage) -> int:
    """Return the highest feature level that all brokers support."""
    return min((levels_of(broker)[1] for broker in image.brokers.values()), default=HIGHEST)


async def check_levels(store: MetadataStore, broker_id: int) -> None:
    """Check, before this broker registers, that this broker shares a feature level with every registered broker. Raises
    NoCommonLevel, StoreUnavailable.
    """
    others = [other for other in await _registered(store) if other != broker_id]
    for other, broker in (await read_brokers(store, ClusterImage(""), others)).items():
        if broker is None:
            continue
        lowest, highest = levels_of(broker)
        if highest < LOWEST:
            raise NoCommonLevel(
                f"broker {other} supports {FEATURE} up to level {highest}, this release supports levels from "
                f"{LOWEST} on: first upgrade that broker to a release in between"
            )
        if lowest > HIGHEST:
            raise NoCommonLevel(
                f"broker {other} supports {FEATURE} from level {lowest} on, this release supports levels up to "
                f"{HIGHEST}: upgrade this broker to a newer release"
            )


async def _registered(store: MetadataStore) -> list[int]:
    try:
        return [int(name) for name in await store.children(paths.BROKER_IDS) if name.isdigit()]
    except NoNode:
        return []  # no broker is registered, because no broker has founded the cluster yet
