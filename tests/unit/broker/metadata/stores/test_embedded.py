"""The specific properties of the store in one file: durability, damage, the lock, and failing writes."""

import asyncio
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading

import pytest

from oncelog_broker.metadata.stores import embedded
from oncelog_broker.metadata.stores.embedded import EmbeddedStore, StoreFileError
from oncelog_broker.metadata.stores.store import (
    ConnectionLost,
    Create,
    Delete,
    NodeExists,
    NoNode,
    SessionExpired,
    SessionState,
    Set,
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "metadata.db"


async def test_everything_is_there_after_a_reopen(path):
    store = EmbeddedStore.open(path)
    await store.multi([Create("/a"), Create("/a/b", b"x"), Create("/gone"), Create("/gone/too")])
    await store.set("/a/b", b"y")
    await store.multi([Delete("/gone/too"), Delete("/gone")])
    before = await store.get_many(["/a", "/a/b"])
    await store.close()
    store = EmbeddedStore.open(path)
    last = 3  # the number of the store's last write, because the store keeps no mzxid for each node
    assert await store.get_many(["/a", "/a/b"]) == [(data, stat._replace(mzxid=last)) for data, stat in before]
    assert await store.children("/") == ["a"]
    await store.delete("/a/b")
    await store.delete("/a")
    await store.close()


async def test_a_copy_of_the_files_of_a_running_store_has_all_that_was_answered(path, tmp_path):
    store = EmbeddedStore.open(path)
    for n in range(10):
        await store.create(f"/{n}")
    (tmp_path / "copy").mkdir()
    for name in (path.name, path.name + "-wal"):
        shutil.copy(tmp_path / name, tmp_path / "copy" / name)
    await store.close()
    copy = EmbeddedStore.open(tmp_path / "copy" / path.name)
    assert len(await copy.children("/")) == 10
    await copy.close()


WRITER = """
import asyncio, sys
from pathlib import Path
from oncelog_broker.metadata.stores.embedded import EmbeddedStore
from oncelog_broker.metadata.stores.store import Create, Set

async def write() -> None:
    store = EmbeddedStore.open(Path(sys.argv[1]))
    await store.create("/last", b"-1")
    for n in range(1_000_000):
        await store.multi([Create(f"/{n}", b"x" * 100), Set("/last", b"%d" % n), Create(f"/{n}/child")])
        sys.stdout.write(f"{n}\\n")
        sys.stdout.flush()

asyncio.run(write())
"""


def answered_before_kill_9(path):
    """Kill a process that keeps writing; return the number of the last write that the process saw confirmed."""
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True)
    for _ in range(50):
        assert writer.stdout.readline()
    os.kill(writer.pid, signal.SIGKILL)
    after = writer.stdout.read().count("\n")
    writer.stdout.close()
    writer.wait()
    return 49 + after


async def test_after_kill_9_all_answered_writes_are_there_and_none_by_halves(path):
    answered = answered_before_kill_9(path)
    store = EmbeddedStore.open(path)
    last = int((await store.get("/last"))[0])
    assert last in (answered, answered + 1)
    assert await store.children("/") == sorted([*map(str, range(last + 1)), "last"])
    assert None not in await store.get_many([f"/{n}/child" for n in range(last + 1)])
    await store.close()


def open_in_another_process(path):
    opener = "import sys, pathlib; from oncelog_broker.metadata.stores.embedded import *\n"
    opener += "try: EmbeddedStore.open(pathlib.Path(sys.argv[1]))\nexcept StoreFileError as e: print(e)"
    return subprocess.run([sys.executable, "-c", opener, str(path)], capture_output=True, text=True, check=True).stdout


async def test_a_second_opener_is_told_that_the_store_is_in_use(path):
    store = EmbeddedStore.open(path)
    assert "in use by another process" in open_in_another_process(path)
    with pytest.raises(StoreFileError, match="in use by another process"):
        EmbeddedStore.open(path)
    await store.create("/still-works")
    await store.close()


def make_text(path):
    path.write_bytes(b"this is not a database, " * 500)


def make_truncated(path):
    path.write_bytes(path.read_bytes()[:5000])


def make_other_format(path):
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()


def make_orphan(path):
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM node WHERE path = '/a'")
    connection.close()


async def test_a_read_only_directory_is_not_reported_as_damage(path, monkeypatch):
    path.write_bytes(b"not ours to read")
    monkeypatch.setattr("os.access", lambda *_: False)  # root may write everywhere, so the check is simulated
    with pytest.raises(StoreFileError, match="may not be read and written by this user"):
        EmbeddedStore.open(path)


def make_empty(path):
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [make_text, make_truncated, make_other_format, make_orphan, make_empty])
async def test_a_damaged_file_is_refused_with_what_to_do(path, damage):
    store = EmbeddedStore.open(path)
    await store.multi([Create("/a"), *(Create(f"/a/{n}", b"x" * 500) for n in range(20))])
    await store.close()
    damage(path)
    with pytest.raises(StoreFileError, match=r"metadata\.db is not a readable metadata store.*backup"):
        EmbeddedStore.open(path)


def test_a_missing_directory_is_named(tmp_path):
    with pytest.raises(StoreFileError, match="Check that its directory exists"):
        EmbeddedStore.open(tmp_path / "none" / "metadata.db")


async def test_an_unfinished_file_of_an_earlier_start_is_replaced(path):
    path.with_name("metadata.db.new").write_bytes(b"half")
    store = EmbeddedStore.open(path)
    await store.close()
    assert not path.with_name("metadata.db.new").exists()


async def test_no_reader_sees_a_write_before_it_is_on_the_disk(path, monkeypatch):
    store = EmbeddedStore.open(path)
    at_the_disk, go_on = threading.Event(), threading.Event()
    commit = embedded._commit_rows

    def held(*arguments):
        at_the_disk.set()
        assert go_on.wait(10)
        commit(*arguments)

    monkeypatch.setattr(embedded, "_commit_rows", held)
    told = []
    store.watch("/", told.append)
    write = asyncio.ensure_future(store.create("/a"))
    await asyncio.to_thread(at_the_disk.wait, 10)
    assert await store.exists("/a") is None
    assert not told
    go_on.set()
    await write
    assert await store.exists("/a") is not None
    assert told == ["/a"]
    await store.close()


async def test_writes_that_wait_share_one_commit(path, monkeypatch):
    store = EmbeddedStore.open(path)
    commits = []
    commit = embedded._commit_rows
    monkeypatch.setattr(embedded, "_commit_rows", lambda *arguments: (commits.append(1), commit(*arguments)))
    writes = [asyncio.ensure_future(store.create(f"/{n % 15}")) for n in range(20)]
    outcomes = await asyncio.gather(*writes, return_exceptions=True)
    assert sum(isinstance(outcome, NodeExists) for outcome in outcomes) == 5
    assert len({outcome.czxid for outcome in outcomes[:15]}) == 15
    assert len(commits) <= 2
    await store.close()


def failing_with(code):
    def fail(*_):
        error = sqlite3.OperationalError("made to fail")
        error.sqlite_errorcode = code
        raise error

    return fail


async def test_a_full_disk_fails_the_write_and_a_later_one_succeeds(path, monkeypatch):
    store = EmbeddedStore.open(path)
    with monkeypatch.context() as patched:
        patched.setattr(embedded, "_commit_rows", failing_with(sqlite3.SQLITE_FULL))
        outcomes = await asyncio.gather(store.create("/a"), store.create("/a/b"), return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [ConnectionLost, ConnectionLost]
    assert store.session is SessionState.CONNECTED
    with pytest.raises(NoNode):
        await store.get("/a")
    await store.create("/a")
    await store.close()


async def test_a_failed_fsync_ends_the_session(path, monkeypatch):
    store = EmbeddedStore.open(path)
    states = []
    store.watch_session(states.append)
    monkeypatch.setattr(embedded, "_commit_rows", failing_with(sqlite3.SQLITE_IOERR))
    with pytest.raises(SessionExpired):
        await store.create("/a")
    assert states == [SessionState.LOST]
    with pytest.raises(SessionExpired):
        await store.multi([Set("/a", b"")])
    await store.close()


async def test_waiting_writes_are_not_done_after_a_failed_fsync(path, monkeypatch):
    """After a failed write, the state of the file is unknown. Writes that wait may depend on data that was not stored,
    so they must not be reported as durable.
    """
    store = EmbeddedStore.open(path)
    await store.create("/before")
    committing, may_fail = threading.Event(), threading.Event()
    commits = []

    def fail_when_told(*_):
        commits.append(1)
        committing.set()
        may_fail.wait(10)
        failing_with(sqlite3.SQLITE_IOERR)()

    monkeypatch.setattr(embedded, "_commit_rows", fail_when_told)
    first = asyncio.ensure_future(store.create("/first"))
    await asyncio.to_thread(committing.wait, 10)
    monkeypatch.undo()
    second = asyncio.ensure_future(store.create("/second"))
    await asyncio.sleep(0)
    may_fail.set()
    outcomes = await asyncio.gather(first, second, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [SessionExpired, SessionExpired]
    await store.close()
    again = EmbeddedStore.open(path)
    assert (await again.children("/"), commits) == (["before"], [1])
    await again.close()


async def test_a_start_after_kill_9_leaves_nothing_in_the_write_ahead_log(path):
    answered = answered_before_kill_9(path)
    wal = path.with_name(path.name + "-wal")
    assert wal.stat().st_size > 0
    store = EmbeddedStore.open(path)
    assert wal.stat().st_size == 0
    assert int((await store.get("/last"))[0]) >= answered
    await store.close()


async def test_a_failing_commit_leaves_no_open_transaction(path):
    store = EmbeddedStore.open(path)
    connection = store._connection
    with pytest.raises(sqlite3.Error):
        embedded._commit_rows(connection, [("/a", embedded.TreeNode(None, 0, 1, 1))], 1)
    assert not connection.in_transaction
    await store.create("/a")
    await store.close()


async def test_s93_a_defect_in_one_write_ends_the_session_and_leaves_nobody_waiting(path, monkeypatch):
    """After a defect the content of the file is unknown; the broker stops, and a restart reads the file."""
    store = EmbeddedStore.open(path)
    states = []
    store.watch_session(states.append)

    def apply(*_):
        raise RuntimeError("a defect")

    monkeypatch.setattr(embedded.Transaction, "apply", apply)
    first, second = (asyncio.ensure_future(store.create(name)) for name in ("/a", "/b"))
    async with asyncio.timeout(30):
        for each in (first, second):
            with pytest.raises(SessionExpired):
                await each
        with pytest.raises(SessionExpired):
            await store.create("/c")
    assert states == [SessionState.LOST]
    await store.close()


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
async def test_s96_only_the_owner_may_read_stored_credentials(path, umask):
    before = os.umask(umask)
    try:
        store = EmbeddedStore.open(path)
        await store.create("/a")
        made = sorted(each.name for each in path.parent.glob("metadata.db*"))
        assert made == ["metadata.db", "metadata.db-wal"] or "metadata.db-shm" in made
        assert {each.stat().st_mode & 0o777 for each in path.parent.glob("metadata.db*")} == {0o600}
        await store.close()
    finally:
        os.umask(before)
