"""Tests each row of the table in docs/design/identity.md: the facts that a broker's start finds, and the decision that
follows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from oncelog_broker.identity.comparison import age, compare
from oncelog_broker.identity.facts import Adoption, Age, DirectoryFacts, Past, StartFacts, StoreFacts, Verdict
from oncelog_broker.identity.note import DirectoryNote, LostDirectory, StoreKind
from oncelog_broker.identity.refusals import Kind, StartRefused

A, B = "dir-a", "dir-b"
BOTH = {A: "/a", B: "/b"}
ZOOKEEPER, EMBEDDED = StoreKind.ZOOKEEPER, StoreKind.EMBEDDED


def note(kind: StoreKind, of: str = A, **changes: Any) -> DirectoryNote:
    """Return the identity file of a directory whose broker registered for the sixth time, as process "p5"."""
    noted = DirectoryNote(of, {of: BOTH[of]}, {}, kind, "store", "zk:2181/kafka", "p5", "", 5, 50, 500)
    return replace(noted, **changes)


def directory(
    kind: StoreKind | None, of: str = A, *, sisters: dict[str, str] | None = None, **changes: Any
) -> DirectoryFacts:
    """Return the facts of a data directory with a log. If `kind` is None, the directory has no identity file."""
    is_file = kind is EMBEDDED and of == A
    noted = None if kind is None else note(kind, of, **changes)
    if noted is not None and sisters is not None:
        noted = replace(noted, directories=sisters)
    return DirectoryFacts(BOTH[of], "c", of, noted, True, kind is ZOOKEEPER and of == A, is_file)


LOST_B = LostDirectory("/b", "p5")
NEW = DirectoryFacts("/a")
NEW_B = DirectoryFacts("/b")
MEMBER, ALONE, UNKNOWN = directory(ZOOKEEPER), directory(EMBEDDED), directory(None)
MEMBER_OF_BOTH = [directory(ZOOKEEPER, of, sisters=BOTH) for of in (A, B)]
ALONE_WITH_BOTH = [directory(EMBEDDED, of, sisters=BOTH) for of in (A, B)]
NOT_YET_REGISTERED = DirectoryFacts("/a", "c", A, DirectoryNote(A, {A: "/a"}, pending="p0"))
MEMBER_OF_0_1 = UNKNOWN._replace(has_trace=True)
ALONE_IN_0_1 = UNKNOWN._replace(has_store_file=True)


def store(kind: StoreKind, **changes: Any) -> StoreFacts:
    """Return facts about a metadata store that agree with the identity files of the data directories."""
    return StoreFacts(kind, "here", "c", "store", 5, "p5", 500)._replace(**changes)


def empty(kind: StoreKind, **changes: Any) -> StoreFacts:
    return StoreFacts(kind, "here")._replace(**changes)


def judge(found: StoreFacts, *directories: DirectoryFacts, accept: tuple[str, ...] = (), **more: Any) -> Verdict:
    return compare(StartFacts(1, directories, found, **more), accept)


RIGHT: list[Any] = [
    pytest.param(empty(ZOOKEEPER), [NEW], {}, {"may_found": True}, id="all new"),
    pytest.param(empty(EMBEDDED), [NEW, NEW_B], {}, {"may_found": True}, id="all new, alone"),
    pytest.param(store(ZOOKEEPER, registration=-1, nonce=""), [NEW], {}, {}, id="a new member"),
    pytest.param(
        store(ZOOKEEPER), [NEW], {}, {"is_unsure": True, "warnings": 1}, id="new directories of a former member",
    ),
    pytest.param(store(ZOOKEEPER), [MEMBER], {}, {}, id="a restart of a member"),
    pytest.param(store(EMBEDDED), [ALONE], {}, {}, id="a restart alone"),
    pytest.param(store(ZOOKEEPER), [directory(ZOOKEEPER, node_id=1)], {}, {}, id="a restart of the noted node"),
    pytest.param(store(ZOOKEEPER, zxid=900), [MEMBER], {}, {}, id="others have written since"),
    pytest.param(
        store(ZOOKEEPER), [UNKNOWN], {}, {"is_unsure": True, "warnings": 1},
        id="empty logs of a start that ended early, or an upgrade of a member without its trace",
    ),
    pytest.param(store(ZOOKEEPER, nonce="", store_id=""), [MEMBER_OF_0_1], {}, {}, id="an upgrade, with its trace"),
    pytest.param(store(EMBEDDED, nonce="", store_id=""), [ALONE_IN_0_1], {}, {}, id="an upgrade alone"),
    pytest.param(store(ZOOKEEPER, nonce="", registration=9), [MEMBER], {}, {}, id="back from the release before"),
    pytest.param(store(EMBEDDED, nonce="", registration=9), [ALONE], {}, {}, id="back from the release before, alone"),
    pytest.param(store(ZOOKEEPER), MEMBER_OF_BOTH, {}, {}, id="two directories"),
    pytest.param(store(ZOOKEEPER), MEMBER_OF_BOTH[::-1], {}, {}, id="two directories in another order"),
    pytest.param(store(ZOOKEEPER), [MEMBER, NEW_B], {}, {}, id="a disk was added"),
    pytest.param(store(EMBEDDED), [ALONE, NEW_B], {}, {}, id="a disk was added, alone"),
    pytest.param(
        store(ZOOKEEPER, nonce="p6", registration=6), [directory(ZOOKEEPER, pending="p6")], {}, {},
        id="killed after it registered, before it noted that",
    ),
    pytest.param(
        store(ZOOKEEPER), [directory(ZOOKEEPER, pending="p6")], {}, {}, id="killed before it registered",
    ),
    pytest.param(
        empty(ZOOKEEPER), [NOT_YET_REGISTERED], {},
        {"may_found": True}, id="a first start that was cut short",
    ),
    pytest.param(
        empty(ZOOKEEPER), [NOT_YET_REGISTERED._replace(has_trace=True)], {},
        {"may_found": True}, id="a first start that was cut short just before it registered",
    ),
    pytest.param(
        empty(EMBEDDED), [NEW._replace(cluster_id="c", directory_id=A, has_store_file=True)], {"has_rights": True},
        {"adoption": Adoption.NONE}, id="a first start alone that was cut short",
    ),
    pytest.param(
        empty(ZOOKEEPER), [ALONE], {"store_file": store(EMBEDDED)},
        {"adoption": Adoption.STORE_FILE, "warnings": 1, "adopts_unknown": False}, id="a move to ZooKeeper",
    ),
    pytest.param(
        empty(ZOOKEEPER), [ALONE], {"store_file": store(EMBEDDED), "has_rights": True},
        {"adoption": Adoption.STORE_FILE, "warnings": 1}, id="a move to ZooKeeper with its users",
    ),
    pytest.param(
        empty(ZOOKEEPER), [ALONE_IN_0_1], {"store_file": store(EMBEDDED, nonce="", store_id="")},
        {"adoption": Adoption.STORE_FILE, "warnings": 1}, id="a move to ZooKeeper from the release before",
    ),
    pytest.param(
        empty(ZOOKEEPER), [ALONE], {"store_file": store(EMBEDDED, registration=3, nonce="p3")},
        {"adoption": Adoption.STORE_FILE, "adopts_unknown": True, "errors": 1, "warnings": 1},
        id="a move with an older metadata.db",
    ),
    pytest.param(
        empty(ZOOKEEPER), [ALONE._replace(has_store_file=False)], {},
        {"adoption": Adoption.LOGS, "errors": 1, "is_refounded": False}, id="a move without metadata.db",
    ),
    pytest.param(
        empty(EMBEDDED), [ALONE._replace(has_store_file=False)], {}, {"adoption": Adoption.LOGS, "errors": 1},
        id="metadata.db was moved away",
    ),
    pytest.param(
        store(EMBEDDED, registration=3, nonce="p3"), [ALONE], {}, {"adopts_unknown": True, "errors": 1},
        id="metadata.db was put back from a backup",
    ),
    pytest.param(
        store(EMBEDDED, zxid=400), [ALONE], {}, {"adopts_unknown": True, "errors": 1},
        id="metadata.db was put back from a backup of the last run",
    ),
    pytest.param(
        store(ZOOKEEPER, registration=7, nonce="p7"), [MEMBER], {}, {"is_unsure": True, "warnings": 1},
        id="an older copy of a member's directory",
    ),
    pytest.param(
        store(ZOOKEEPER, registration=7, nonce="p7"),
        [directory(ZOOKEEPER, sisters=BOTH, process="p7", registration=7), MEMBER_OF_BOTH[1]], {},
        {"is_unsure": True, "warnings": 1}, id="an older copy of one of two directories",
    ),
    pytest.param(
        store(ZOOKEEPER), MEMBER_OF_BOTH[:1], {}, {"is_unsure": True, "warnings": 1}, id="a directory is missing",
    ),
    pytest.param(
        store(ZOOKEEPER), [NOT_YET_REGISTERED], {"alone_in_sync": ("orders-0",)}, {"is_unsure": True, "warnings": 1},
        id="all came back empty, and a start in them was cut short before it registered",
    ),
    pytest.param(
        store(ZOOKEEPER), [MEMBER, DirectoryFacts("/b", "c", B, DirectoryNote(B, {B: "/b"}, pending="p0"))], {}, {},
        id="a disk was added, and a start with it was cut short before it registered",
    ),
    pytest.param(
        store(ZOOKEEPER), [MEMBER_OF_BOTH[0], NEW_B], {}, {"is_unsure": True, "warnings": 1},
        id="a directory came back empty",
    ),
    pytest.param(
        store(ZOOKEEPER), [MEMBER_OF_BOTH[1], NEW], {}, {"is_unsure": True, "warnings": 1},
        id="the first directory came back empty",
    ),
    pytest.param(
        store(ZOOKEEPER, nonce=""), [MEMBER_OF_0_1, NEW_B], {}, {"is_unsure": True, "warnings": 1},
        id="a new directory beside those of the release before",
    ),
    pytest.param(
        empty(ZOOKEEPER, founded_by="p6"), [directory(ZOOKEEPER, pending="p6")], {},
        {"adoption": Adoption.LOGS, "is_refounded": True, "may_found": True}, id="a founding that was cut short",
    ),
    pytest.param(
        empty(ZOOKEEPER, founded_by="p6"), [directory(EMBEDDED, pending="p6")], {"store_file": store(EMBEDDED)},
        {"adoption": Adoption.STORE_FILE, "warnings": 1}, id="a move that was cut short",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("found", "directories", "more", "expected"), RIGHT)
def test_a_start_that_is_right(
    found: StoreFacts, directories: list[DirectoryFacts], more: dict[str, Any], expected: dict[str, Any]
) -> None:
    verdict = judge(found, *directories, **more)
    assert verdict.refusals == ()
    defaults = {"is_unsure": False, "adopts_unknown": False, "may_found": found.cluster_id is None}
    for name, value in (defaults | {"warnings": 0, "errors": 0} | expected).items():
        is_value = getattr(verdict, name)
        assert (len(is_value) if name in ("warnings", "errors") else is_value) == value, (name, is_value)


REFUSED: list[Any] = [
    pytest.param(
        empty(ZOOKEEPER), [MEMBER], {}, [Kind.NEW_STORE], {"is_refounded": True, "adoption": Adoption.LOGS},
        "the ZooKeeper at here does not have its metadata", id="a wrong chroot, or an empty ZooKeeper",
    ),
    pytest.param(
        empty(ZOOKEEPER), [MEMBER_OF_0_1], {}, [Kind.NEW_STORE], {"is_refounded": True, "adoption": Adoption.LOGS},
        "does not have its metadata", id="a wrong chroot after an upgrade",
    ),
    pytest.param(
        empty(EMBEDDED), [MEMBER], {}, [Kind.ALONE], {"is_refounded": True, "adoption": Adoption.LOGS},
        "zookeeper.connect is not set", id="a member alone",
    ),
    pytest.param(
        empty(EMBEDDED), [UNKNOWN, MEMBER_OF_0_1], {}, [Kind.ALONE], {"is_refounded": True},
        "zookeeper.connect is not set", id="a member alone, its trace in the second directory",
    ),
    pytest.param(
        store(EMBEDDED), [MEMBER_OF_0_1], {}, [Kind.ALONE], {}, "zookeeper.connect is not set",
        id="a member alone after an upgrade",
    ),
    pytest.param(
        store(EMBEDDED, store_id="old", nonce="p1"), [MEMBER], {}, [Kind.ALONE], {},
        "zookeeper.connect is not set", id="a member alone that left its metadata.db",
    ),
    pytest.param(
        store(ZOOKEEPER, registration=3, nonce="p3"), [MEMBER], {}, [Kind.OLDER_STORE], {"is_unsure": True},
        "the store has 4 registrations of this broker", id="ZooKeeper was put back from a backup",
    ),
    pytest.param(
        store(ZOOKEEPER, zxid=499), [MEMBER], {}, [Kind.OLDER_STORE], {"is_unsure": True},
        "its last write is 499", id="ZooKeeper lost its last writes",
    ),
    pytest.param(
        store(ZOOKEEPER, registration=-1, nonce=""), [MEMBER], {}, [Kind.OLDER_STORE], {"is_unsure": True},
        "the store has 0 registrations", id="ZooKeeper knows nothing of this broker",
    ),
    pytest.param(
        store(ZOOKEEPER, store_id="other", nonce="q"), [MEMBER], {}, [Kind.OTHER_STORE], {"is_unsure": True},
        "last belonged to another metadata store", id="another store of the cluster",
    ),
    pytest.param(
        store(ZOOKEEPER, nonce="q"), [MEMBER], {}, [Kind.OTHER_STORE], {"is_unsure": True},
        "a copy that was used separately", id="a copy of the directory has registered in a copy of the store",
    ),
    pytest.param(
        store(EMBEDDED, store_id="other", nonce="q"), [ALONE], {}, [Kind.OTHER_STORE], {"adopts_unknown": True},
        "another metadata store", id="metadata.db of another time",
    ),
    pytest.param(
        store(ZOOKEEPER, store_id="other", nonce=""), [ALONE], {}, [Kind.OTHER_STORE], {"is_unsure": True},
        "another metadata store", id="alone, and ZooKeeper has a cluster of that id",
    ),
    pytest.param(
        store(ZOOKEEPER), [ALONE_IN_0_1], {}, [Kind.OTHER_STORE], {"is_unsure": True},
        "has a cluster of the same id", id="alone in the release before, and ZooKeeper has a cluster of that id",
    ),
    pytest.param(
        empty(ZOOKEEPER), [UNKNOWN], {}, [Kind.NEW_STORE], {"adoption": Adoption.LOGS, "is_refounded": False},
        "have no note of their metadata store", id="Apache Kafka's directory, with ZooKeeper",
    ),
    pytest.param(
        empty(EMBEDDED), [UNKNOWN], {}, [Kind.NEW_STORE], {"adoption": Adoption.LOGS, "is_refounded": False},
        "Apache Kafka's, a copy", id="Apache Kafka's directory, alone",
    ),
    pytest.param(
        empty(EMBEDDED), [ALONE._replace(has_store_file=False)], {"has_rights": True}, [Kind.NEW_STORE],
        {"adoption": Adoption.LOGS}, "it had the users and ACLs", id="metadata.db with users was moved away",
    ),
    pytest.param(
        empty(EMBEDDED), [ALONE._replace(has_store_file=False)], {"has_rights": True, "copied": "yesterday"},
        [Kind.NEW_STORE], {"adoption": Adoption.COPY}, "a right removed after yesterday would be granted again",
        id="metadata.db with users was moved away, beside a copy of the metadata",
    ),
    pytest.param(
        empty(ZOOKEEPER), [MEMBER], {"copied": "yesterday"}, [Kind.NEW_STORE],
        {"adoption": Adoption.COPY, "is_refounded": True, "is_unsure": True}, "this broker wrote at yesterday",
        id="ZooKeeper was lost, beside a copy of the metadata",
    ),
    pytest.param(
        empty(ZOOKEEPER), [ALONE], {"has_rights": True, "store_file_fault": "it is damaged"}, [Kind.NEW_STORE],
        {"adoption": Adoption.LOGS}, "it is damaged", id="a move with a damaged metadata.db with users",
    ),
    pytest.param(
        store(ZOOKEEPER, registration=7, nonce="p7"), [MEMBER], {"alone_in_sync": ["t-0"]}, [Kind.OLDER_DIRECTORY],
        {"is_unsure": True}, "no other replica of t-0 is in sync", id="an older copy of what only this member has",
    ),
    pytest.param(
        store(EMBEDDED, registration=7, nonce="p7"), [ALONE], {}, [Kind.OLDER_DIRECTORY], {},
        "was restored from a copy", id="an older copy of a directory alone",
    ),
    pytest.param(
        store(EMBEDDED), [directory(EMBEDDED, node_id=7)], {}, [Kind.OTHER_NODE], {"is_unsure": True},
        "/a was a data directory of broker 7, and this is broker 1", id="a clone of another node, alone",
    ),
    pytest.param(
        store(ZOOKEEPER), [directory(ZOOKEEPER, node_id=7)], {}, [Kind.OTHER_NODE], {"is_unsure": True},
        "Set node.id=7", id="a clone of another node",
    ),
    pytest.param(
        store(EMBEDDED), ALONE_WITH_BOTH[:1], {}, [Kind.LOST_DIRECTORY], {}, "log.dirs no longer lists it",
        id="a directory is missing, alone",
    ),
    pytest.param(
        store(EMBEDDED), [ALONE_WITH_BOTH[0], NEW_B], {}, [Kind.LOST_DIRECTORY], {}, "is empty, or has other contents",
        id="a directory came back empty, alone",
    ),
    pytest.param(
        empty(EMBEDDED), [ALONE_WITH_BOTH[1], NEW], {}, [Kind.LOST_DIRECTORY], {"adoption": Adoption.LOGS},
        "is empty, or has other contents", id="the directory with metadata.db came back empty",
    ),
    pytest.param(
        empty(ZOOKEEPER), ALONE_WITH_BOTH[:1], {"store_file": store(EMBEDDED)}, [Kind.LOST_DIRECTORY],
        {"adoption": Adoption.STORE_FILE}, "log.dirs no longer lists it", id="a move with a directory less",
    ),
    pytest.param(
        empty(ZOOKEEPER), MEMBER_OF_BOTH[:1], {}, [Kind.NEW_STORE, Kind.LOST_DIRECTORY], {},
        "does not have its metadata", id="a wrong chroot and a directory less",
    ),
    pytest.param(
        empty(ZOOKEEPER, founded_by="another"), [NEW], {}, [Kind.NEW_STORE], {"may_found": True},
        "has begun to create a cluster", id="a founding that was begun with other directories",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("found", "directories", "more", "kinds", "expected", "words"), REFUSED)
def test_a_start_that_is_refused_says_why_and_goes_on_if_told(
    found: StoreFacts,
    directories: list[DirectoryFacts],
    more: dict[str, Any],
    kinds: list[Kind],
    expected: dict[str, Any],
    words: str,
) -> None:
    refused = judge(found, *directories, **more)
    assert {each.kind for each in refused.refusals} == set(kinds)
    message = str(StartRefused(refused.refusals))
    assert words in message
    accept = tuple(each.accept for each in refused.refusals)
    assert all(each in message for each in accept)
    accepted = judge(found, *directories, accept=("new-store:00000000", *accept), **more)
    assert accepted.refusals == ()
    assert accepted.accepted == refused.refusals
    assert accepted.unused == ("new-store:00000000",)
    for name, value in expected.items():
        assert getattr(accepted, name) == value, name


def test_s73_a_directory_of_a_member_is_lost_until_somebody_accepts_that() -> None:
    """Only at this start does the broker count as having possibly lost records; partitions that may have been in the
    lost directory stay offline.
    """
    first = judge(store(ZOOKEEPER), MEMBER_OF_BOTH[0])
    assert (first.is_unsure, first.lost) == (True, {B: LOST_B})
    later = directory(ZOOKEEPER, registration=6, process="p6", lost=first.lost)
    known = store(ZOOKEEPER, registration=6, nonce="p6")
    again = judge(known, later)
    assert (again.is_unsure, again.lost, again.refusals) == (False, {B: LOST_B}, ())
    assert again.warnings == first.warnings
    (said,) = again.warnings
    accept = said.partition("start.accept=")[2].partition(":")
    accepted = judge(known, later, accept=(f"lost-directory:{accept[2][:8]}",))
    assert (accepted.is_unsure, accepted.lost, accepted.warnings) == (False, {}, ())
    back = judge(known, later, directory(ZOOKEEPER, B))
    assert (back.is_unsure, back.lost, back.has_older_directories) == (True, {}, False)
    older = judge(known, later, directory(ZOOKEEPER, B, process="p4"))
    assert (older.is_unsure, older.lost, older.has_older_directories) == (True, {}, True)


def test_an_accepted_loss_does_not_cover_a_later_mistake() -> None:
    (first,) = judge(empty(ZOOKEEPER), MEMBER).refusals
    later = directory(ZOOKEEPER, registration=6, process="p6")
    (second,) = judge(empty(ZOOKEEPER), later, accept=(first.accept,)).refusals
    assert second.kind is first.kind
    assert second.accept != first.accept


def test_s70_an_empty_store_that_was_accepted_accepts_no_empty_store_elsewhere() -> None:
    for directories in (MEMBER, UNKNOWN._replace(cluster_id="c")):
        (first,) = judge(empty(ZOOKEEPER), directories).refusals
        assert not judge(empty(ZOOKEEPER), directories, accept=(first.accept,)).refusals
        (second,) = judge(empty(ZOOKEEPER, place="elsewhere"), directories, accept=(first.accept,)).refusals
        assert second.accept != first.accept


def test_the_past_of_a_directory_is_known_by_its_notes_or_its_files() -> None:
    assert judge(store(ZOOKEEPER), MEMBER).past is Past.MEMBER
    assert judge(store(ZOOKEEPER), MEMBER_OF_0_1).past is Past.MEMBER
    assert judge(store(EMBEDDED), ALONE).past is Past.ALONE
    assert judge(store(EMBEDDED), ALONE_IN_0_1).past is Past.ALONE
    assert judge(store(EMBEDDED), UNKNOWN).past is Past.UNKNOWN
    assert judge(store(EMBEDDED), NEW).past is Past.NEW
    # A broker that became standalone again by `start.accept` still has a file of its former cluster, but the
    # directory's identity file takes precedence.
    assert judge(store(EMBEDDED), ALONE._replace(has_trace=True)).past is Past.ALONE


def test_the_age_of_a_directory_is_found() -> None:
    noted = note(ZOOKEEPER)
    assert age(None, store(ZOOKEEPER)) is Age.UNKNOWN
    assert age(noted, store(ZOOKEEPER)) is Age.CURRENT
    # The nonce takes precedence over the metadata store's id, because a move to another store may have been interrupted
    # after the registration there.
    assert (
        age(note(EMBEDDED, pending="p6"), store(ZOOKEEPER, store_id="new", nonce="p6", registration=0)) is Age.CURRENT
    )
    assert age(noted, store(ZOOKEEPER, nonce="q", registration=6)) is Age.OLDER
    assert age(noted, store(ZOOKEEPER, nonce="q", registration=4)) is Age.STORE_OLDER
    assert age(noted, store(ZOOKEEPER, nonce="q")) is Age.OTHER_STORE


SUPERVISED = StoreKind.SUPERVISED
WORKER = directory(SUPERVISED, store_place="/data/metadata.db")


@pytest.mark.parametrize("found", [WORKER, ALONE], ids=["a restart of a worker", "a broker alone became worker 1"])
def test_a_worker_finds_the_store_of_its_supervisor(found: DirectoryFacts) -> None:
    verdict = judge(store(SUPERVISED), found)
    assert (verdict.refusals, verdict.warnings, verdict.is_unsure) == ((), (), False)


@pytest.mark.parametrize(
    ("found", "directories", "kind", "says"),
    [
        (empty(EMBEDDED), [WORKER], Kind.ALONE, "one of several workers with metadata in /data/metadata.db: alone"),
        (store(EMBEDDED, registration=3), [WORKER], Kind.ALONE, "oncelog serve --workers, in the directory above"),
        (empty(SUPERVISED), [WORKER], Kind.NEW_STORE, "Put metadata.db (with its -wal file) back"),
        (empty(ZOOKEEPER), [WORKER], Kind.NEW_STORE, "Remove zookeeper.connect"),
        (empty(SUPERVISED), [MEMBER], Kind.ALONE, "Set zookeeper.connect=zk:2181/kafka"),
        (store(SUPERVISED, registration=3), [WORKER], Kind.OLDER_STORE, "Put the newest metadata.db"),
    ],
    ids=["alone", "alone, with a store", "lost store", "empty ZooKeeper", "of a cluster", "older store"],
)
def test_a_worker_is_refused_with_the_remedy_of_workers(
    found: StoreFacts, directories: list[DirectoryFacts], kind: Kind, says: str
) -> None:
    (refusal,) = judge(found, *directories).refusals
    assert refusal.kind is kind
    assert says in refusal.sentence
