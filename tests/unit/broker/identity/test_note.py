"""The identity file ("note") of a data directory records which broker and which cluster the directory belongs to."""

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path

import pytest

from oncelog_broker.identity.note import (
    NOTE_FILE,
    DirectoryNote,
    LostDirectory,
    NoteError,
    StoreKind,
    has_lost_sister,
    read_note,
    write_note,
)
from oncelog_broker.runtime.disk import RealDisk

DISK = RealDisk()
SISTERS = {"a": "/data/ä", "b": "/b"}
LOST = {"c": LostDirectory("/c", "o")}
NOTE = DirectoryNote("a", SISTERS, LOST, StoreKind.ZOOKEEPER, "store", "zk:2181/kafka", "p", "q", 7, 99, 2**40, True, 3)


def test_a_note_is_read_back_and_private(tmp_path: Path) -> None:
    assert read_note(DISK, str(tmp_path)) is None
    for note in (NOTE, DirectoryNote("a")):
        write_note(DISK, str(tmp_path), note)
        assert read_note(DISK, str(tmp_path)) == note
        assert stat.S_IMODE((tmp_path / NOTE_FILE).stat().st_mode) == 0o600


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b'{"version": 1}', b"\xff", b'{"version": 2}'])
def test_a_note_that_cannot_be_read_is_refused_with_what_to_do(tmp_path: Path, content: bytes) -> None:
    (tmp_path / NOTE_FILE).write_bytes(content)
    with pytest.raises(NoteError, match=rf"{NOTE_FILE} cannot be read: .*Put the file back .*or delete it"):
        read_note(DISK, str(tmp_path))


def test_a_process_is_known_by_either_nonce_and_nobody_by_none() -> None:
    assert NOTE.is_of("p")
    assert NOTE.is_of("q")
    assert not NOTE.is_of("r")
    assert not DirectoryNote("a").is_of("")
    assert not DirectoryNote("a").has_registered


def test_a_sister_is_lost_when_it_is_gone_or_has_another_id(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    a.mkdir(), b.mkdir()
    assert not has_lost_sister(DISK, str(a))
    sisters = {"a": str(a), "b": str(b)}
    write_note(DISK, str(a), DirectoryNote("a", sisters))
    assert has_lost_sister(DISK, str(a))
    write_note(DISK, str(b), DirectoryNote("b", sisters))
    assert not has_lost_sister(DISK, str(a))
    write_note(DISK, str(b), replace(NOTE, directory_id="c"))
    assert has_lost_sister(DISK, str(a))
