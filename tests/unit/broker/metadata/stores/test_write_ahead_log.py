"""A -wal file that belongs to another state of the store is refused and never merged into the store."""

import shutil
import sqlite3
from pathlib import Path

import pytest

from oncelog_broker.metadata.stores import write_ahead_log
from oncelog_broker.metadata.stores.embedded import EmbeddedStore, StoreFileError
from oncelog_broker.metadata.stores.store import Create
from oncelog_broker.metadata.stores.write_ahead_log import check, log_of


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metadata.db"


def copy(path: Path, directory: str) -> Path:
    """Copy the files of a running store, as `kill -9` would leave them."""
    target = path.parent / directory
    target.mkdir()
    for each in (path, log_of(path)):
        if each.exists():
            shutil.copy(each, target)
    return target / path.name


async def write(path: Path, *nodes: str, killed: str = "") -> Path:
    """Write these nodes one after the other and return the path of the files; with `killed`, the files are copied
    before the process closes the store.
    """
    store = EmbeddedStore.open(path)
    for node in nodes:
        await store.create(node, b"x" * 100)
    left = copy(path, killed) if killed else path
    await store.close()
    return left


async def nodes(path: Path) -> list[str]:
    store = EmbeddedStore.open(path)
    found = sorted(store.nodes())
    await store.close()
    return [each for each in found if each != "/"]


def content(path: Path) -> dict[Path, bytes]:
    return {each: each.read_bytes() for each in path.parent.glob("metadata.db*") if not each.name.endswith("-shm")}


def refusal(path: Path) -> str:
    """Check that the store refuses to open and that no file changes; return the reason for the refusal."""
    before = content(path)
    with pytest.raises(StoreFileError) as caught:
        EmbeddedStore.open(path)
    assert content(path) == before
    return str(caught.value)


async def test_s71_a_backup_beside_the_log_of_a_killed_process_is_refused(path: Path) -> None:
    await write(path, *(f"/{n}" for n in range(300)))
    backup = path.read_bytes()
    await write(path, *(f"/{n}" for n in range(300, 500)))
    killed = await write(path, "/last", killed="killed")
    killed.write_bytes(backup)
    assert f"{log_of(killed)} was not written for {killed}" in refusal(killed)
    log_of(killed).unlink()
    assert len(await nodes(killed)) == 300


async def test_s71_a_backup_of_a_running_store_without_its_log_is_refused_beside_a_later_log(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the copy, the same process checkpointed its write-ahead log into the store file and began a new write-ahead
    log.
    """
    monkeypatch.setattr(write_ahead_log, "MAX_LOG_SIZE", 50_000)
    store = EmbeddedStore.open(path)
    await store.create("/a")
    backup = path.read_bytes()
    for n in range(30):
        await store.create(f"/{n}")
    assert path.read_bytes() != backup
    killed = copy(path, "killed")
    await store.close()
    assert len(await nodes(copy(killed, "again"))) == 31
    killed.write_bytes(backup)
    assert "was not written for" in refusal(killed)


async def test_s71_a_log_without_its_file_is_refused(path: Path) -> None:
    killed = await write(path, "/a", killed="killed")
    killed.unlink()
    assert f"{killed} is missing, but {log_of(killed)}, the last writes" in refusal(killed)
    log_of(killed).unlink()
    assert await nodes(killed) == []


async def test_a_log_of_the_file_is_applied_and_looking_changes_nothing(path: Path) -> None:
    await write(path, "/a")
    killed = await write(path, "/b", killed="killed")
    before = content(killed)
    check(killed)
    assert content(killed) == before
    assert log_of(killed).stat().st_size > 0
    again = await write(killed, "/c", killed="again")
    assert await nodes(again) == ["/a", "/b", "/c"]


async def test_a_process_may_be_killed_before_a_new_base_is_in_the_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await write(path, "/a")
    store = EmbeddedStore.open(path)
    base = store._log_base
    base._add_columns()
    store._connection.execute("UPDATE last_write SET previous_base = base, base = 'new'")
    killed = copy(path, "killed")
    await store.close()
    assert log_of(killed).stat().st_size > 0
    assert await nodes(copy(killed, "as-it-was")) == ["/a"]
    again = await write(killed, "/b", killed="again")
    assert await nodes(again) == ["/a", "/b"]


async def test_a_file_of_an_earlier_release_gets_a_base_at_its_first_write(path: Path) -> None:
    await write(path, "/a")
    with sqlite3.connect(path) as connection:
        for name in ("base", "previous_base"):
            connection.execute(f"ALTER TABLE last_write DROP COLUMN {name}")
    connection.close()
    backup = path.read_bytes()
    assert await nodes(path) == ["/a"]
    assert path.read_bytes() == backup, "a start that is refused changes nothing"
    await write(path, "/b")
    with_base = path.read_bytes()
    killed = await write(path, "/c", killed="killed")
    killed.write_bytes(with_base)
    assert "was not written for" in refusal(killed)


async def test_a_full_disk_while_a_log_is_begun_fails_one_write(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = EmbeddedStore.open(path)
    limit = store._connection.execute("PRAGMA page_count").fetchone()[0]
    store._connection.execute(f"PRAGMA max_page_count = {limit}")
    with pytest.raises(Exception, match="disk of the metadata store is full"):
        await store.multi([Create(f"/{n}", b"x" * 1000) for n in range(50)])
    store._connection.execute("PRAGMA max_page_count = 100000")
    await store.create("/a")
    killed = copy(path, "killed")
    await store.close()
    assert await nodes(killed) == ["/a"]


def test_an_empty_file_is_no_store_and_stays_empty(path: Path) -> None:
    path.write_bytes(b"")
    assert "is not a readable metadata store: the file is empty" in refusal(path)
