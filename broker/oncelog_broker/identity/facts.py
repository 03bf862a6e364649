"""What a start looks at, and what the comparison makes of it: plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

from oncelog_broker.identity.note import NEVER, DirectoryNote, LostDirectory, StoreKind
from oncelog_broker.identity.refusals import Refusal


class DirectoryFacts(NamedTuple):
    """One data directory, as it is found."""

    path: str
    cluster_id: str | None = None
    """Of meta.properties; None where there is none, or it has no cluster id."""
    directory_id: str | None = None
    note: DirectoryNote | None = None
    has_logs: bool = False
    has_trace: bool = False
    """Whether a member of a cluster has left its session there: `metadata/incarnation.py`."""
    has_store_file: bool = False
    """Whether an embedded metadata store lies in it."""


class StoreFacts(NamedTuple):
    """The metadata store that the configuration names."""

    kind: StoreKind
    place: str
    """For people."""
    cluster_id: str | None = None
    """None: the store is empty."""
    store_id: str = ""
    """"" where no broker of this release has registered yet."""
    registration: int = NEVER
    """Of this broker: version of its incarnation node; -1 where it was never registered."""
    nonce: str = ""
    """Of the process that registered last; "" where that was one of a release before 0.2, or nobody."""
    zxid: int = 0
    """Of the store's last write."""
    founded_by: str = ""
    """Nonce of the process of this broker that has begun to found the cluster and did not finish; "": none."""
    replaces: str = ""
    """Id of the store that was lost, where the cluster was founded again from a copy of its metadata."""


class StartFacts(NamedTuple):
    """All that a start looks at."""

    node_id: int
    directories: Sequence[DirectoryFacts]
    store: StoreFacts
    has_rights: bool = False
    """Whether users or ACLs, which logs cannot give back, decide who may do what here."""
    store_file: StoreFacts | None = None
    """The embedded store of a broker that moves to ZooKeeper; None where there is none, or it cannot be read."""
    store_file_fault: str = ""
    """Why it cannot be read; "" where it can."""
    alone_in_sync: Sequence[str] = ()
    """Partitions of a member of which no other replica is in sync. Asked for where a directory is older."""
    copied: str = ""
    """When the copy of the cluster's metadata was written that lies in the directories, for people; "" without one."""


class Past(Enum):
    """What the data directories belonged to."""

    NEW = auto()
    """To nobody yet."""
    ALONE = auto()
    """To a broker alone."""
    MEMBER = auto()
    """To a member of a cluster with ZooKeeper."""
    UNKNOWN = auto()
    """They do not say: Apache Kafka's, or those of a release before 0.2."""


class Adoption(Enum):
    """What a cluster that is founded begins with."""

    NONE = auto()
    LOGS = auto()
    """The topics whose logs are found."""
    COPY = auto()
    """What the copy of the lost store's metadata says, which the broker keeps in a data directory."""
    STORE_FILE = auto()
    """What the embedded store says; this broker moves to ZooKeeper with it."""


class Age(Enum):
    """One data directory beside the store."""

    CURRENT = auto()
    """The process that registered last had it."""
    UNKNOWN = auto()
    """Nothing says so, and nothing says otherwise."""
    OLDER = auto()
    """The broker has registered since."""
    STORE_OLDER = auto()
    """The directory knows more than the store."""
    OTHER_STORE = auto()
    REFOUNDED = auto()
    """The store that the directory belonged to was lost, and this one was founded in its place."""
    RETURNED = auto()
    """The broker has registered since, without the directory, which is as it was when it went."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of the start."""

    past: Past
    refusals: tuple[Refusal, ...] = ()
    """Those that were not accepted. With any, the start ends here."""
    accepted: tuple[Refusal, ...] = ()
    unused: tuple[str, ...] = ()
    """Entries of `start.accept` that accept nothing of this start."""
    warnings: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    """To be logged: what is wrong, and was made right."""
    adoption: Adoption = Adoption.NONE
    """What the store is to begin with, if it is empty."""
    may_found: bool = False
    """Whether the store is empty, and this broker may found the cluster there."""
    is_refounded: bool = False
    """A cluster that had other members begins anew: others may have been given higher leader epochs than the logs
    here have."""
    is_unsure: bool = False
    """Records that this broker had may be missing from its logs."""
    adopts_unknown: bool = False
    """Logs of topics that the store does not know are taken over, since the store is older."""
    lost: Mapping[str, LostDirectory] = field(default_factory=dict)
    """By directory id, those that the broker had and has no more. What has no log may have been there."""
    has_older_store: bool = False
    """The metadata store is an earlier state of what the directories know: leader epochs may have been given out since
    then."""
    has_older_directories: bool = False
    """Ask for `alone_in_sync`, and compare again."""
