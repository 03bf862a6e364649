"""Reads and writes the file `oncelog.identity` in each data directory: the directory's metadata store, sister
directories and last registration.

`meta.properties` names the cluster and the node of a directory. From `oncelog.identity` a start can determine whether
directories and store are the same as at the broker's last registration, are older copies, or are others.

A *nonce* is a random id that each process creates at its start. The broker's incarnation node in the store and the note
in the directory both have the nonce of the process that registered last. A directory is current if its note has the
same nonce as the store. The nonce is written in two steps:

- before a process registers, the process durably writes its nonce as `pending` into every directory;
- after the registration, the same process writes its nonce as `process`, with the number of the registration.

A process that is killed between these two writes leaves both nonces in the notes, and the store may have either nonce.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import field
from enum import Enum
from typing import Any, Final

from oncelog_broker.runtime.disk import Disk
from oncelog_protocol.light_classes import NamedTuple, dataclass

NOTE_FILE: Final = "oncelog.identity"
FORMAT_VERSION: Final = 1
NEVER: Final = -1


class NoteError(ValueError):
    """The identity note (`oncelog.identity`) exists and cannot be read. The message of this error says what the
    operator can do.
    """


class StoreKind(Enum):
    """The kind of a broker's metadata store."""

    EMBEDDED = "embedded"
    """The metadata store is a file of the broker itself, which is a cluster of one broker."""
    ZOOKEEPER = "zookeeper"
    """The metadata store is ZooKeeper; the broker is a member of a cluster."""
    SUPERVISED = "supervised"
    """The metadata store is a file that the supervisor of several workers serves to them; each worker is a broker."""
    MEMORY = "memory"
    """The metadata store is in memory and shared by all brokers of one process; it behaves like ZooKeeper and is for
    tests."""

    @property
    def is_shared(self) -> bool:
        """Whether several brokers may share a store of this kind."""
        return self is not StoreKind.EMBEDDED


class LostDirectory(NamedTuple):
    """A data directory that the broker had earlier, and that is missing now."""

    path: str
    process: str
    """Nonce of the last process that used the directory. If the directory is found again and its note has this nonce,
    the directory has lost nothing.
    """


@dataclass(frozen=True, slots=True)
class DirectoryNote:
    """The identity note of one data directory."""

    directory_id: str
    """Id of the directory that contains this identity note."""
    directories: Mapping[str, str] = field(default_factory=dict)
    """Maps the id of each data directory of the broker, including this directory, to its absolute path."""
    lost: Mapping[str, LostDirectory] = field(default_factory=dict)
    """Maps the directory id to the directory, for each directory that was missing at the last registration and whose
    loss no operator has accepted.
    """
    store_kind: StoreKind | None = None
    """The kind of the store; None if no broker has registered with this directory yet."""
    store_id: str = ""
    store_place: str = ""
    """The path of the store, or the value of `zookeeper.connect`; for messages."""
    process: str = ""
    """Nonce of the broker process that registered last in the store; "" if no process has registered."""
    pending: str = ""
    """Nonce that a broker process wrote just before its registration; "" if no process was about to register."""
    registration: int = NEVER
    """Version of the broker's incarnation node in the store, which counts the registrations from 0; NEVER before the
    first registration."""
    broker_epoch: int = NEVER
    zxid: int = NEVER
    """Id of the store's latest write that the broker had seen when this note was written."""
    keeps_left_over: bool = False
    """Flag that is set before the broker registers in a store that does not know the broker's logs. The flag is reset
    after the logs have been examined. While this field is set, logs that the store assigns to other brokers are renamed
    as stray, not deleted.
    """
    node_id: int = NEVER
    """node.id of the broker that registered last. `meta.properties` has the node.id, too, but administrators edit that
    file to clone a directory."""

    @property
    def has_registered(self) -> bool:
        """Whether a broker has registered with this directory or has prepared a registration."""
        return bool(self.process or self.pending)

    def is_of(self, nonce: str) -> bool:
        """Whether the process with this nonce was the last process that used the directory."""
        return nonce != "" and nonce in (self.process, self.pending)


def read_note(disk: Disk, directory: str) -> DirectoryNote | None:
    """Read the identity note of a directory. Returns None for a directory that is new, or that Apache Kafka or an
    earlier release has used. Raises NoteError, OSError."""
    path = os.path.join(directory, NOTE_FILE)
    if not disk.exists(path):
        return None
    try:
        return _parsed(json.loads(disk.read_file(path)))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise NoteError(
            f"{path} cannot be read: {error}. Put the file back from a copy of this directory; or delete it, if "
            "you are sure that this is the last directory of this broker: the start then compares nothing"
        ) from error


def write_note(disk: Disk, directory: str, note: DirectoryNote) -> None:
    """Replace the identity note atomically; the note is durable when this function returns. Raises OSError."""
    document = {
        "version": FORMAT_VERSION,
        "directory_id": note.directory_id,
        "directories": dict(sorted(note.directories.items())),
        "lost": {each: lost._asdict() for each, lost in sorted(note.lost.items())},
        "store_kind": None if note.store_kind is None else note.store_kind.value,
        "store_id": note.store_id,
        "store_place": note.store_place,
        "process": note.process,
        "pending": note.pending,
        "registration": note.registration,
        "broker_epoch": note.broker_epoch,
        "zxid": note.zxid,
        "keeps_left_over": note.keeps_left_over,
        "node_id": note.node_id,
    }
    content = json.dumps(document, indent=1, ensure_ascii=False).encode() + b"\n"
    disk.replace_file(os.path.join(directory, NOTE_FILE), content, private=True)


def has_lost_sister(disk: Disk, directory: str) -> bool:
    """Whether a sister directory in the note of `directory` is missing at its path, or has another id now. Raises
    OSError, NoteError."""
    note = read_note(disk, directory)
    if note is None:
        return False
    for directory_id, path in note.directories.items():
        sister = read_note(disk, path)
        if sister is None or sister.directory_id != directory_id:
            return True
    return False


def _parsed(document: Any) -> DirectoryNote:
    """Parse the JSON of an identity note. Raises ValueError, KeyError, TypeError, AttributeError."""
    if document["version"] != FORMAT_VERSION:
        raise ValueError(f"its format version is {document['version']}, this release supports {FORMAT_VERSION}")
    kind = document["store_kind"]
    return DirectoryNote(
        directory_id=str(document["directory_id"]),
        directories={str(each): str(path) for each, path in document["directories"].items()},
        lost={
            str(each): LostDirectory(str(lost["path"]), str(lost["process"])) for each, lost in document["lost"].items()
        },
        store_kind=None if kind is None else StoreKind(kind),
        store_id=str(document["store_id"]),
        store_place=str(document["store_place"]),
        process=str(document["process"]),
        pending=str(document["pending"]),
        registration=int(document["registration"]),
        broker_epoch=int(document["broker_epoch"]),
        zxid=int(document["zxid"]),
        keeps_left_over=bool(document.get("keeps_left_over", False)),
        node_id=int(document.get("node_id", NEVER)),
    )
