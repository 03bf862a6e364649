"""Compares the directories and the store of a starting broker with the notes (files `oncelog.identity`) about the last
registration. The inputs are the facts about directories, store and notes (`facts`). The output is the verdict: refuse
the start, or start with corrections.

The rule: a start that could lose records, or split records between two clusters, is refused, with an explanation and
the setting that accepts the difference. A difference that the broker can correct from the logs or from a copy of the
metadata is corrected. The verdict has the warnings and errors to be logged. docs/design/identity.md has the table of
cases. Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from oncelog_broker.identity.facts import Adoption, Age, DirectoryFacts, Past, StartFacts, StoreFacts, Verdict
from oncelog_broker.identity.note import NEVER, DirectoryNote, LostDirectory, StoreKind
from oncelog_broker.identity.refusals import ACCEPT_KEY, Kind, Refusal


@dataclass
class _Findings:
    """Collects the refusals, warnings and corrections of a verdict."""

    refusals: list[Refusal] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    is_unsure: bool = False
    adopts_unknown: bool = False
    lost: Mapping[str, LostDirectory] = field(default_factory=dict)
    has_older_directories: bool = False
    has_older_store: bool = False


MAX_NAMES: Final = 10
"""Maximum number of partitions that one message names."""
RECORDS_AGAIN: Final = (
    "the topics are restored from the logs of this broker; logs that only other brokers had, settings, users "
    "and ACLs are lost"
)
FROM_COPY: Final = (
    "topics, replica assignments, settings, users, ACLs and quotas are restored from the copy that this broker "
    "wrote at {copied}, and the replica with the most records leads. Changes after that moment are lost. The "
    "other brokers join without such a setting"
)


def compare(facts: StartFacts, accept: Collection[str] = ()) -> Verdict:
    """Return the verdict on a start: refused, or accepted with warnings and corrections. `accept`: the entries of
    `start.accept`.

    `meta_properties.py` has checked before that all directories and the store name the same cluster and node.
    """
    past = past_of(facts)
    ages = _ages(facts)
    found = _Findings()
    adoption, is_refounded = Adoption.NONE, False
    if facts.store.cluster_id is None:
        adoption, is_refounded = _compare_with_empty_store(facts, past, found)
    else:
        _compare_with_store(facts, past, ages, found)
        # The partitions of a re-founded cluster may need records of any former replica, also of a replica without
        # notes.
        found.is_unsure = found.is_unsure or (facts.store.replaces != "" and facts.store.registration == NEVER)
    _compare_nodes(facts, found)
    _look_for_sisters(facts, past, ages, accept, found)
    refused = [each for each in found.refusals if each.accept not in accept]
    taken = [each for each in found.refusals if each.accept in accept]
    return Verdict(
        past,
        tuple(refused),
        tuple(taken),
        tuple(each for each in accept if each not in {refusal.accept for refusal in taken}),
        tuple(found.warnings),
        tuple(found.errors),
        adoption,
        facts.store.cluster_id is None,
        is_refounded,
        found.is_unsure,
        found.adopts_unknown,
        found.lost,
        found.has_older_store,
        found.has_older_directories,
    )


def past_of(facts: StartFacts) -> Past:
    """Return which kind of cluster the directories belonged to. The kind is determined from their notes
    (`oncelog.identity`); if there are no notes, from the other files in the directories.
    """
    notes = [each.note for each in facts.directories if each.note is not None and _has_registered(each)]
    kinds = {note.store_kind for note in notes if note.store_kind is not None}
    if any(kind.is_shared for kind in kinds):
        return Past.MEMBER
    if StoreKind.EMBEDDED in kinds:
        return Past.ALONE
    silent = [each for each in facts.directories if each.note is None or each.note.store_kind is None]
    has_logs = any(each.has_logs for each in facts.directories)
    # The identity note and the session file (which every cluster member writes) exist before the first registration.
    # If the broker has never registered and there are no logs, the session file is ignored. A session file without an
    # identity note was written by an earlier release.
    if any(each.has_trace and (has_logs or each.note is None) for each in silent):
        return Past.MEMBER
    if any(each.has_store_file for each in silent):
        return Past.ALONE
    # A directory with a cluster id and without logs may come from a first start that was interrupted.
    return Past.UNKNOWN if has_logs else Past.NEW


def age(note: DirectoryNote | None, store: StoreFacts) -> Age:
    """Compare the identity note of one directory with a store that is not empty."""
    if note is None or store.cluster_id is None:
        return Age.UNKNOWN
    is_same_store = not note.store_id or not store.store_id or note.store_id == store.store_id
    if store.kind.is_shared and not note.process and not note.is_of(store.nonce):
        return Age.NEW
    if note.is_of(store.nonce):
        is_older = is_same_store and (store.registration < note.registration or store.zxid < note.zxid)
        return Age.STORE_OLDER if is_older else Age.CURRENT
    if not is_same_store:
        return Age.REFOUNDED if store.replaces == note.store_id else Age.OTHER_STORE
    if store.registration < note.registration:
        return Age.STORE_OLDER
    if not store.nonce:
        return Age.UNKNOWN  # no broker has registered, or one of a release that writes no nonce
    return Age.OLDER if store.registration > note.registration else Age.OTHER_STORE


def _ages(facts: StartFacts) -> dict[str, Age]:
    """Return the age (current, older or newer than the store) of each directory with which a broker has registered, by
    the directory's path.
    """
    ages = {each.path: age(each.note, facts.store) for each in facts.directories if _has_registered(each)}
    for each in facts.directories:
        lost = _lost_in(facts, ages, each.directory_id)
        if lost is not None and each.note is not None and each.note.is_of(lost.process):
            ages[each.path] = Age.RETURNED
    return ages


def _lost_in(facts: StartFacts, ages: Mapping[str, Age], directory_id: str | None) -> LostDirectory | None:
    """The notes of current directories list lost directories. Return the entry about this directory; None if no note
    lists it.
    """
    current = [each.note for each in facts.directories if ages.get(each.path) is Age.CURRENT and each.note is not None]
    found = [note.lost[directory_id] for note in current if directory_id is not None and directory_id in note.lost]
    return found[0] if found else None


def _are_all_blank(facts: StartFacts) -> bool:
    """Return whether nothing in the directories shows that any process has registered with them. They may nevertheless
    have a cluster id, empty logs and even the mark of a clean shutdown, from a start that ended early.
    """
    return not any(_has_registered(each) or each.has_trace for each in facts.directories)


def _has_registered(directory: DirectoryFacts) -> bool:
    return directory.note is not None and directory.note.has_registered


def _compare_with_empty_store(facts: StartFacts, past: Past, found: _Findings) -> tuple[Adoption, bool]:
    """Return the source of the metadata with which this start founds the cluster, and whether this start founds an
    earlier cluster again that had other members.
    """
    store, logs = facts.store, any(each.has_logs for each in facts.directories)
    is_continued = any(each.note is not None and each.note.is_of(store.founded_by) for each in facts.directories)
    if store.founded_by and not is_continued:
        _refuse(
            found, facts, Kind.NEW_STORE,
            f"broker {facts.node_id} has begun to create a cluster in the metadata store at {store.place} with "
                "other data directories, and did not finish",
            "Start the broker with those directories, or empty the store",
            "the cluster is created with the contents of the store and of these directories",
            store.founded_by,
        )  # fmt: skip
    has_begun = any(each.note is not None and each.note.process for each in facts.directories)
    is_file_empty = facts.store_file is None or facts.store_file.cluster_id is None
    if past is Past.NEW or (past is Past.ALONE and not logs and not has_begun and is_file_empty):
        return Adoption.NONE, False
    if past is Past.MEMBER:
        if not is_continued:
            _refuse_to_found_anew(facts, found)
        if facts.copied and store.kind.is_shared:
            found.is_unsure = True
            return Adoption.COPY, True
        return Adoption.LOGS, True
    if past is Past.UNKNOWN:
        if not is_continued and any(each.cluster_id is not None for each in facts.directories):
            _refuse(
                found, facts, Kind.NEW_STORE,
                f"{_owners(facts)}, and have no note of their metadata store; the metadata store at "
                    f"{store.place} is empty. The directories may be Apache Kafka's, a copy, or those of a broker "
                    "with another metadata store",
                f"If they belong to a cluster, connect the broker to its store{_hint(facts)}",
                f"a new cluster is created; {RECORDS_AGAIN}",
            )  # fmt: skip
        return Adoption.LOGS, False
    if facts.store_file is not None and not is_file_empty:
        as_alone = facts._replace(store=facts.store_file)
        if not is_continued:
            _compare_with_store(as_alone, past, _ages(as_alone), found)
        found.warnings.append(
            f"the broker moves from its own metadata store, {facts.store_file.place}, to the one in ZooKeeper at "
            f"{store.place}: topics, settings, users, ACLs and quotas are copied"
        )
        return Adoption.STORE_FILE, False
    lost = f"the metadata store of this broker is missing ({facts.store_file_fault or _noted_place(facts)})"
    if facts.copied:
        taken = (
            "topics, settings, users, ACLs and quotas are restored from the copy that this broker wrote at "
            f"{facts.copied}"
        )
        if facts.has_rights:
            _refuse(
                found, facts, Kind.NEW_STORE,
                f"{lost}, and it had the users and ACLs: a right removed after {facts.copied} would be granted again",
                "Put metadata.db (with its -wal file) back",
                f"{taken}; changes after that moment are lost",
            )  # fmt: skip
        else:
            found.errors.append(f"{lost}: {taken}; changes after that moment are lost")
        return Adoption.COPY, False
    if facts.has_rights:
        _refuse(
            found, facts, Kind.NEW_STORE,
            f"{lost}, and it had the users and ACLs, which cannot be restored from logs: users can no longer log in, "
            "and rules that denied access are lost",
            "Put metadata.db (with its -wal file) back",
            "topics are restored from their logs without their settings (their records are kept for ever); "
                "users, ACLs and quotas are lost",
        )  # fmt: skip
    elif logs:
        found.errors.append(
            f"{lost}: topics are restored from their logs. Their settings are lost, so their records are kept "
            "until retention.ms and retention.bytes are set; users, ACLs and quotas are lost. To restore them, "
            "stop the broker now, before producers write records, and replace the new metadata.db by the old "
            "one (with its -wal file); the next start names the setting that it needs"
        )
    return Adoption.LOGS, False


def _refuse_to_found_anew(facts: StartFacts, found: _Findings) -> None:
    store, where = facts.store, _noted_place(facts)
    was_worker = _noted_kind(facts) is StoreKind.SUPERVISED
    if store.kind is StoreKind.EMBEDDED or (store.kind is StoreKind.SUPERVISED and not was_worker):
        _refuse_to_be_alone(facts, found)
        return
    if was_worker:
        _refuse(
            found, facts, Kind.NEW_STORE,
            f"{_owners(facts)}, one of several workers with metadata in {where}, but the metadata store at "
            f"{store.place} is empty",
            "Put metadata.db (with its -wal file) back" if store.kind is StoreKind.SUPERVISED
            else "Remove zookeeper.connect",
            f"a new cluster is founded; {FROM_COPY.format(copied=facts.copied) if facts.copied else RECORDS_AGAIN}",
        )  # fmt: skip
        return
    _refuse(
        found, facts, Kind.NEW_STORE,
        f"{_owners(facts)}, a cluster with metadata in ZooKeeper{f' at {where}' if where else ''}, but the "
            f"ZooKeeper at {store.place} does not have its metadata: zookeeper.connect may be wrong (for example "
            "its chroot), or ZooKeeper has lost its data",
        "Correct zookeeper.connect, or restore ZooKeeper",
        f"a new cluster is created; {FROM_COPY.format(copied=facts.copied) if facts.copied else RECORDS_AGAIN}",
    )  # fmt: skip


def _refuse_to_be_alone(facts: StartFacts, found: _Findings) -> None:
    where = _noted_place(facts)
    if _noted_kind(facts) is StoreKind.SUPERVISED:
        _refuse(
            found, facts, Kind.ALONE,
            f"{_owners(facts)}, one of several workers with metadata in {where}: alone, the broker would accept writes "
            "that the other workers never see",
            "Start all of them with oncelog serve --workers, in the directory above this one",
            f"the broker is a cluster of its own from now on; {RECORDS_AGAIN}",
        )  # fmt: skip
        return
    _refuse(
        found, facts, Kind.ALONE,
        f"{_owners(facts)}, a cluster with metadata in ZooKeeper{f' at {where}' if where else ''}, but "
            "zookeeper.connect is not set: without the cluster, the broker would serve outdated records, and "
            "accept writes that the cluster never sees",
        f"Set zookeeper.connect{f'={where}' if where else ''}",
        f"from now on, the broker is a separate cluster; {RECORDS_AGAIN}",
    )  # fmt: skip


def _compare_with_store(facts: StartFacts, past: Past, ages: dict[str, Age], found: _Findings) -> None:
    store = facts.store
    is_right_kind = Age.CURRENT in ages.values() or past is not Past.MEMBER or store.kind.is_shared
    if Age.NEW in ages.values() and Age.CURRENT not in ages.values() and store.registration != NEVER:
        found.warnings.append(
            f"{_listed([path for path, each in ages.items() if each is Age.NEW])} is new, and this broker had other "
            "data directories. The broker's logs count as unsure: replicas that have all records lead"
        )
        found.is_unsure = True
    if _are_all_blank(facts) and store.kind.is_shared and store.registration != NEVER:
        found.warnings.append(
            f"{_listed([each.path for each in facts.directories])} is new, but broker {facts.node_id} has registered "
            "before. The broker's logs count as unsure: replicas that have all records lead"
        )
        found.is_unsure = True
    if ages and is_right_kind and all(each in (Age.CURRENT, Age.NEW, Age.UNKNOWN) for each in ages.values()):
        return
    if past is Past.MEMBER and store.kind is StoreKind.EMBEDDED:
        _refuse_to_be_alone(facts, found)
        found.adopts_unknown = True
        return
    of_age = {wanted: [path for path, each in ages.items() if each is wanted] for wanted in Age}
    if of_age[Age.OTHER_STORE]:
        _refuse(
            found, facts, Kind.OTHER_STORE,
            f"{_listed(of_age[Age.OTHER_STORE])} last belonged to another metadata store than the one at "
                f"{store.place}{_noted(facts)}, with the same cluster id: the store, or the directory, is a copy "
                "that was used separately",
            "Connect the broker to its former store",
            "records of its logs that the store's cluster does not have are truncated, or the directories of "
                "their logs are renamed",
        )  # fmt: skip
        found.is_unsure, found.adopts_unknown = True, store.kind is StoreKind.EMBEDDED
    elif past is Past.ALONE and store.kind.is_shared and not ages:
        _refuse(
            found, facts, Kind.OTHER_STORE,
            f"{_store_file(facts)} is the metadata store of this broker, but the ZooKeeper at {store.place} has a "
            "cluster of the same id",
            f"Remove zookeeper.connect, or move {_store_file(facts)} away if the broker is a member of that cluster",
            "the broker joins that cluster; the directories of logs whose topics the cluster does not have are "
                "renamed",
        )  # fmt: skip
        found.is_unsure = True
    if of_age[Age.REFOUNDED]:
        found.warnings.append(
            "the metadata store of the cluster was lost, and another broker restored the cluster in the "
            f"metadata store at {store.place} from its copy. The broker's logs count as unsure: replicas that "
            "have more records lead"
        )
        found.is_unsure = True
    if of_age[Age.RETURNED]:
        found.warnings.append(
            f"{_listed(of_age[Age.RETURNED])} had been lost and came back unchanged. The broker's logs count as "
            "unsure: replicas that have more records lead"
        )
        found.is_unsure = True
    if of_age[Age.STORE_OLDER]:
        _judge_older_store(facts, of_age[Age.STORE_OLDER], found)
    if of_age[Age.OLDER]:
        _judge_older_directories(facts, of_age[Age.OLDER], found)


def _judge_older_store(facts: StartFacts, newer: list[str], found: _Findings) -> None:
    store, notes = facts.store, _notes(facts)
    found.has_older_store = True
    seen = max(note.registration for note in notes), max(note.zxid for note in notes)
    differs = (
        f"the metadata store at {store.place} is older than {_listed(newer)}: the store has "
        f"{store.registration + 1} registrations of this broker and its last write is {store.zxid}, the "
        f"directory has seen {seen[0] + 1} registrations and write {seen[1]}. The store was restored from a "
        "backup, or has lost its last writes"
    )
    if store.kind is StoreKind.EMBEDDED:
        found.errors.append(
            f"{differs}. Topics that are missing in the store are restored from their logs, without their "
            "settings; other changes of settings, users, ACLs and quotas since then are lost"
        )
        found.adopts_unknown = True
        return
    _refuse(
        found, facts, Kind.OLDER_STORE, differs,
        "Put the newest metadata.db (with its -wal file) back" if store.kind is StoreKind.SUPERVISED
        else "Restore the newest state of ZooKeeper, or connect to the right ZooKeeper",
        "the decisions of the cluster since then (topics, leaders, settings) are lost; the broker's logs count as "
        "unsure, so that the replicas with the most records lead",
    )  # fmt: skip
    found.is_unsure = True


def _judge_older_directories(facts: StartFacts, older: list[str], found: _Findings) -> None:
    store = facts.store
    differs = (
        f"{_listed(older)} {'is' if len(older) == 1 else 'are'} older than the metadata store at {store.place}: "
        "the broker has registered since with a newer state of the directory. The directory was restored from "
        "a copy, and later changes are missing"
    )
    found.has_older_directories = True
    if store.kind.is_shared and not facts.alone_in_sync:
        found.warnings.append(
            f"{differs}. The broker's logs count as unsure: replicas that have more records lead, and this broker "
            "fetches the missing records from them"
        )
        found.is_unsure = True
        return
    names = facts.alone_in_sync
    of_which = f" of {', '.join(names[:MAX_NAMES])}{' and others' if len(names) > MAX_NAMES else ''}" if names else ""
    if names:
        differs += f"; no other replica{of_which} is in sync"
    _refuse(
        found, facts, Kind.OLDER_DIRECTORY, differs,
        "Put the newest state of the directory back",
        f"the records{of_which} that were written since the copy was taken are lost, and their offsets are "
            "assigned again",
    )  # fmt: skip
    found.is_unsure = True


def _compare_nodes(facts: StartFacts, found: _Findings) -> None:
    """Refuse the start if a directory's broker had another node.id at its last registration."""
    others = [
        (each.path, each.note.node_id)
        for each in facts.directories
        if each.note is not None and each.note.node_id not in (NEVER, facts.node_id)
    ]
    if not others:
        return
    paths, nodes = [path for path, _ in others], sorted({node for _, node in others})
    _refuse(
        found, facts, Kind.OTHER_NODE,
        f"{_listed(paths)} {'was a data directory' if len(paths) == 1 else 'were data directories'} of broker "
        f"{', '.join(map(str, nodes))}, and this is broker {facts.node_id}: meta.properties was edited, or is another "
        "broker's",
        f"Set node.id={nodes[0]}, there and in meta.properties, or start with the broker's own directories",
        f"the logs are treated as those of broker {facts.node_id}; the directories of partitions that are "
            "assigned to other brokers are renamed",
        *(f"node of {path} {node}" for path, node in others),
    )  # fmt: skip
    found.is_unsure = True


def _look_for_sisters(
    facts: StartFacts, past: Past, ages: dict[str, Age], accept: Collection[str], found: _Findings
) -> None:
    """Find the directories that the broker had at its last registration and that are missing now (sister
    directories)."""
    registered = [each for each in facts.directories if _has_registered(each)]
    newest = [each.note for each in registered if ages[each.path] is Age.CURRENT and each.note is not None]
    present = {each.directory_id for each in facts.directories}
    known: dict[str, LostDirectory] = {}
    lost: dict[str, LostDirectory] = {}
    for note in newest or _notes(facts):
        process = facts.store.nonce if note.is_of(facts.store.nonce) else note.process
        for directory_id, path in note.directories.items():
            if directory_id not in present:
                lost[directory_id] = LostDirectory(path, process)
        known |= {directory_id: each for directory_id, each in note.lost.items() if directory_id not in present}
    is_member = past is Past.MEMBER and facts.store.kind.is_shared and facts.store.cluster_id is not None
    if known or lost:
        refusal = _lost_directories(facts, known | lost)
        if not is_member or refusal.accept in accept:
            found.refusals.append(refusal)
        else:
            found.warnings.append(
                f"{refusal.difference}. Partitions in this directory are offline until another replica leads "
                f"them and this broker has fetched their records. {refusal.remedy}. Or set "
                f"{ACCEPT_KEY}={refusal.accept}: {refusal.consequence}"
            )
            found.lost = known | lost
        found.is_unsure = found.is_unsure or bool(is_member and lost)
    elif not registered and any(each.cluster_id is not None for each in facts.directories):
        empty = [each.path for each in facts.directories if each.directory_id is None and each.cluster_id is None]
        if empty and is_member:
            found.warnings.append(
                f"{_listed(empty)} is new, and the other data directories have no note of the existing "
                "directories, so it may replace a lost directory. The broker's logs count as unsure: replicas "
                "that have all records lead"
            )
            found.is_unsure = True


def _lost_directories(facts: StartFacts, lost: Mapping[str, LostDirectory]) -> Refusal:
    """Return the refusal of a start because data directories are lost. The digest depends only on ids of node, cluster
    and directories, so the same loss has the same digest at each start.
    """
    paths = sorted({each.path for each in lost.values()})
    again = [path for path in paths if path in {each.path for each in facts.directories}]
    was = "was a data directory" if len(paths) == 1 else "were data directories"
    how = f"{_listed(again)} is empty, or has other contents" if again else "log.dirs no longer lists it"
    return Refusal(
        Kind.LOST_DIRECTORY,
        f"{_listed(paths)} {was} of this broker; {how}. The disk may not be mounted, or was exchanged",
        "Mount the disk, or add the directory to log.dirs",
        "partitions that only this directory had restart empty",
        (f"node {facts.node_id}", *sorted({each.cluster_id or "" for each in facts.directories}), *sorted(lost)),
    )


def _refuse(
    found: _Findings, facts: StartFacts, kind: Kind, difference: str, remedy: str, consequence: str, *more: str
) -> None:
    store, notes = facts.store, _notes(facts)
    what = (
        f"node {facts.node_id}",
        f"clusters {sorted({each.cluster_id or '' for each in facts.directories})}",
        f"directories {sorted(each.directory_id or '' for each in facts.directories)}",
        f"noted {sorted((note.store_id, note.registration, note.process) for note in notes)}",
        f"found {store.kind.value} {store.cluster_id} {store.store_id} {store.registration} {store.nonce}",
        # only the path or address distinguishes two empty stores
        f"at {store.place if store.cluster_id is None else ''}",
        *more,
    )
    found.refusals.append(Refusal(kind, difference, remedy, consequence, what))


def _notes(facts: StartFacts) -> list[DirectoryNote]:
    return [each.note for each in facts.directories if each.note is not None and each.note.has_registered]


def _owners(facts: StartFacts) -> str:
    """Return a text such as "/a and /b belong to broker 1 of cluster X"."""
    owned = [each for each in facts.directories if each.cluster_id is not None] or list(facts.directories)
    belong = "belongs" if len(owned) == 1 else "belong"
    return (
        f"{_listed([each.path for each in owned])} {belong} to broker {facts.node_id} of cluster {owned[0].cluster_id}"
    )


def _noted_kind(facts: StartFacts) -> StoreKind | None:
    """Return the kind of the store at the broker's last registration; None if no identity note has the kind."""
    return next((note.store_kind for note in _notes(facts) if note.store_kind is not None), None)


def _noted_place(facts: StartFacts) -> str:
    """Return the path or ZooKeeper address of the store at the broker's last registration; "" if no identity note has
    it.
    """
    return next((note.store_place for note in _notes(facts) if note.store_place), "")


def _noted(facts: StartFacts) -> str:
    place = _noted_place(facts)
    return f" (it was at {place})" if place and place != facts.store.place else ""


def _store_file(facts: StartFacts) -> str | None:
    """Return the path of the directory with an embedded store; None if no directory has an embedded store."""
    return next((each.path for each in facts.directories if each.has_store_file), None)


def _hint(facts: StartFacts) -> str:
    return " (zookeeper.connect)" if facts.store.kind is StoreKind.EMBEDDED else ""


def _listed(paths: Sequence[str]) -> str:
    return paths[0] if len(paths) == 1 else f"{', '.join(paths[:-1])} and {paths[-1]}"
