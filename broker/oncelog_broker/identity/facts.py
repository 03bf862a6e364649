"""The values that a start finds in its directories and its store, and the verdict of the comparison. No behaviour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

from oncelog_broker.identity.note import NEVER, DirectoryNote, LostDirectory, StoreKind
from oncelog_broker.identity.refusals import Refusal


class DirectoryFacts(NamedTuple):
    """The state of one data directory, as the start finds it."""

    path: str
    cluster_id: str | None = None
    """The cluster id in meta.properties; None if the file or the entry is missing."""
    directory_id: str | None = None
    note: DirectoryNote | None = None
    has_logs: bool = False
    has_trace: bool = False
    """Whether it has the session file of a member of a cluster: `metadata/membership/incarnation.py`."""
    has_store_file: bool = False
    """Whether it has an embedded metadata store."""


class StoreFacts(NamedTuple):
    """The metadata store that the configuration names."""

    kind: StoreKind
    place: str
    """The path of the store or `zookeeper.connect`, for messages."""
    cluster_id: str | None = None
    """None: the store is empty."""
    store_id: str = ""
    """"" if no broker whose release has identity notes has registered yet."""
    registration: int = NEVER
    """Version of this broker's incarnation node, which counts its registrations from 0; NEVER if it has none."""
    nonce: str = ""
    """Nonce of the process of this broker that registered last; "" if there is none, or its release writes no nonce."""
    zxid: int = 0
    """Id of the store's last write."""
    founded_by: str = ""
    """Nonce of the process of this broker that began to found the cluster and did not finish; "" if there is none."""
    replaces: str = ""
    """Id of the lost store that this one replaces, if the cluster was founded again from a copy; else ""."""


class StartFacts(NamedTuple):
    """All facts that the comparison of a start uses."""

    node_id: int
    directories: Sequence[DirectoryFacts]
    store: StoreFacts
    has_rights: bool = False
    """Whether an authorizer or SCRAM is configured: users and ACLs cannot be restored from logs."""
    store_file: StoreFacts | None = None
    """The embedded store of a broker that moves to ZooKeeper; None if it is missing, or cannot be read."""
    store_file_fault: str = ""
    """Why the embedded store cannot be read; "" if it can, or if it is missing."""
    alone_in_sync: Sequence[str] = ()
    """The partitions whose only in-sync replica is this broker. Filled in only if a directory is older."""
    copied: str = ""
    """When the copy of the metadata in the directories was written, as text for messages; "" without a copy."""


class Past(Enum):
    """The owner of the data directories before this start."""

    NEW = auto()
    """The directories are empty: no broker has used them yet."""
    ALONE = auto()
    """A broker with an embedded store."""
    MEMBER = auto()
    """A member of a cluster with ZooKeeper, or one of several workers."""
    UNKNOWN = auto()
    """The directories have no notes: they belong to Apache Kafka, or to an earlier release."""


class Adoption(Enum):
    """The source of the first nodes of a cluster that this start founds."""

    NONE = auto()
    LOGS = auto()
    """The logs in the data directories."""
    COPY = auto()
    """The copy of the lost store's metadata in a data directory."""
    STORE_FILE = auto()
    """The broker's embedded store: the broker moves from it to ZooKeeper."""


class Age(Enum):
    """The age of one data directory compared with the store."""

    CURRENT = auto()
    """The process that registered last had the directory."""
    NEW = auto()
    """No process has registered with the directory yet: each that was about to ended before."""
    UNKNOWN = auto()
    """The note and the store do not say."""
    OLDER = auto()
    """The broker has registered since with a later state of the directory: this is a copy."""
    STORE_OLDER = auto()
    """The note names a registration or a write that the store does not have."""
    OTHER_STORE = auto()
    """The directory belongs to another store of the same cluster id."""
    REFOUNDED = auto()
    """The store of the directory was lost, and the present store was founded in its place."""
    RETURNED = auto()
    """The directory was missing at later registrations, and came back unchanged."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether and how the start continues."""

    past: Past
    refusals: tuple[Refusal, ...] = ()
    """Differences that `start.accept` does not accept. If there is a refusal, the broker does not start."""
    accepted: tuple[Refusal, ...] = ()
    """Differences that `start.accept` accepts."""
    unused: tuple[str, ...] = ()
    """Entries of `start.accept` that match no difference of this start."""
    warnings: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    """Differences that the broker corrects and logs as errors."""
    adoption: Adoption = Adoption.NONE
    """The data from which this start founds the cluster, if the store is empty."""
    may_found: bool = False
    """Whether the store is empty, so that this broker may found the cluster."""
    is_refounded: bool = False
    """Whether this start founds a cluster again that had other members: these may have led with higher leader epochs
    than the logs here have."""
    is_unsure: bool = False
    """Whether records that this broker acknowledged may be missing from its logs."""
    adopts_unknown: bool = False
    """Whether logs of topics that the older store does not have are taken over instead of set aside."""
    lost: Mapping[str, LostDirectory] = field(default_factory=dict)
    """The missing data directories by id. The log of a partition that is missing here may have been in one of them."""
    has_older_store: bool = False
    """Whether the metadata store is older than the directories: it may give out leader epochs for the second time."""
    has_older_directories: bool = False
    """Whether a data directory is older: the caller must fill in `StartFacts.alone_in_sync` and compare again."""
