"""Lists all metrics, in the order of a scrape."""

from __future__ import annotations

from typing import Final

from oncelog_broker.metrics import (
    client_families,
    cluster_families,
    coordinator_families,
    own_families,
    partition_families,
    process_families,
    quota_families,
    request_families,
    share_families,
    topic_families,
)
from oncelog_broker.metrics.family import Family

SECTIONS: Final = (
    ("Exactly once, and the event loop", own_families.families),
    ("Cluster and replication", cluster_families.families),
    ("Requests and connections", request_families.families),
    ("Quotas", quota_families.families),
    ("Topics", topic_families.families),
    ("Partitions", partition_families.families),
    ("Groups", coordinator_families.families),
    ("Share partitions", share_families.families),
    ("Clients", client_families.families),
    ("Process", process_families.families),
)

FAMILIES: Final[tuple[Family, ...]] = tuple(family for _, section in SECTIONS for family in section.declared)
