"""The facts that a start finds in its directories and its store, and the verdict of the comparison. This module has
only value types, without logic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from enum import Enum, auto

from oncelog_broker.identity.note import NEVER, DirectoryNote, LostDirectory, StoreKind
from oncelog_broker.identity.refusals import Refusal
from oncelog_protocol.light_classes import NamedTuple, dataclass


class DirectoryFacts(NamedTuple):
    """The state of one data directory at the start."""

    path: str
    cluster_id: str | None = None
    """The cluster id in meta.properties; None if the file or the entry is missing."""
    directory_id: str | None = None
    note: DirectoryNote | None = None
    has_logs: bool = False
    has_trace: bool = False
    """Whether the directory has the session file that a cluster member writes (`metadata/membership/incarnation.py`).
    """
    has_store_file: bool = False
    """Whether the directory has an embedded metadata store."""


class StoreFacts(NamedTuple):
    """The state of the metadata store that the configuration names."""

    kind: StoreKind
    place: str
    """The path of an embedded store, or `zookeeper.connect`; for messages."""
    cluster_id: str | None = None
    """The cluster id in the store; None if the store is empty."""
    store_id: str = ""
    """The random id of the store; "" until a broker of a release that writes identity notes has registered in the
    store.
    """
    registration: int = NEVER
    """Version of this broker's incarnation node, which counts the broker's registrations from 0; NEVER if there is no
    such node."""
    nonce: str = ""
    """Nonce of the process of this broker that registered last; "" if no process has registered, or its release writes
    no nonce."""
    zxid: int = 0
    """Id of the metadata store's last write (zxid)."""
    founded_by: str = ""
    """Nonce of a process of this broker that began to found the cluster and did not finish; "" if founding was not
    begun or was finished.
    """
    replaces: str = ""
    """Id of the lost store that this store replaces, if the cluster was founded again from a copy; otherwise ""."""


class StartFacts(NamedTuple):
    """All facts on which the comparison at a start depends."""

    node_id: int
    directories: Sequence[DirectoryFacts]
    store: StoreFacts
    has_rights: bool = False
    """Whether an authorizer or SCRAM is configured. If so, users and ACLs exist in the metadata store, and they cannot
    be restored from logs.
    """
    store_file: StoreFacts | None = None
    """The embedded store of a broker that moves to ZooKeeper; None if the store is missing or cannot be read."""
    store_file_fault: str = ""
    """The reason why the embedded store cannot be read; "" if the store can be read or is missing."""
    alone_in_sync: Sequence[str] = ()
    """The partitions whose only in-sync replica is this broker. This field is filled in only if a directory is older
    than the store.
    """
    copied: str = ""
    """Time at which the copy of the metadata in the directories was written, as text for messages; "" without a
    copy."""


class Past(Enum):
    """The owner of the data directories before this start."""

    NEW = auto()
    """The directories are empty, because no broker has used the directories yet."""
    ALONE = auto()
    """A broker with an embedded store used the directories."""
    MEMBER = auto()
    """A broker of a cluster with ZooKeeper, or one of several workers, used the directories."""
    UNKNOWN = auto()
    """The directories have no notes, so Apache Kafka or an earlier release has used the directories."""


class Adoption(Enum):
    """The source of the metadata of a cluster that this start founds."""

    NONE = auto()
    LOGS = auto()
    """The logs in the data directories."""
    COPY = auto()
    """The copy of the lost store's metadata in a data directory."""
    STORE_FILE = auto()
    """The broker's embedded store; the broker moves from this store to ZooKeeper."""


class Age(Enum):
    """The age of one data directory in comparison with the store."""

    CURRENT = auto()
    """Current: the process that registered last used this directory."""
    NEW = auto()
    """New: no process has registered with the directory yet. A process may have prepared a registration, but it ended
    before it registered.
    """
    UNKNOWN = auto()
    """Unknown: the directory's note and the store do not determine the age."""
    OLDER = auto()
    """Older: the broker has since registered with a later state of this directory, so the present directory is an older
    copy.
    """
    STORE_OLDER = auto()
    """Newer: the directory's note has a registration or a write that the store does not have, so the store is older."""
    OTHER_STORE = auto()
    """Other store: the directory belongs to another store with the same cluster id."""
    REFOUNDED = auto()
    """Replaced store: the store of the directory was lost, and the present store was founded to replace it."""
    RETURNED = auto()
    """Returned: the directory was missing at the broker's later registrations, and is present again, unchanged."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of the comparison: whether and how the start continues."""

    past: Past
    refusals: tuple[Refusal, ...] = ()
    """The differences that refuse the start, because `start.accept` does not accept them. If there is any, the broker
    does not start.
    """
    accepted: tuple[Refusal, ...] = ()
    """The differences that would refuse the start, but that `start.accept` accepts."""
    unused: tuple[str, ...] = ()
    """Entries of `start.accept` that match no difference of this start."""
    warnings: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    """The differences that the broker corrects, and logs as errors."""
    adoption: Adoption = Adoption.NONE
    """The data from which this start founds the cluster, if the store is empty."""
    may_found: bool = False
    """Whether the store is empty, so that this broker may found the cluster."""
    is_refounded: bool = False
    """Whether this start founds an earlier cluster again. Other members of that cluster may have led with higher leader
    epochs than the logs of this broker have."""
    is_unsure: bool = False
    """Whether records that this broker acknowledged may be missing from its logs."""
    adopts_unknown: bool = False
    """Whether topics that exist only as logs, and not in the store, are added to the store. If False, the directories
    of their logs are renamed as stray, and the records are kept.
    """
    lost: Mapping[str, LostDirectory] = field(default_factory=dict)
    """The missing data directories by id. A missing log of a partition may have been in one of these directories."""
    has_older_store: bool = False
    """Whether the metadata store is older than the directories, so that it may allocate leader epochs a second time."""
    has_older_directories: bool = False
    """Whether a data directory is older than the store. If this field is True, the caller must fill in
    `StartFacts.alone_in_sync` and compare again.
    """
