"""Successive starts of brokers in the same data directories, with the embedded store: identity files, their comparison
with the store, and refused starts.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.support.hosts import host_of
from tests.support.storage import make_batch

from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.identity.note import NOTE_FILE, read_note
from oncelog_broker.identity.refusals import Kind, StartRefused
from oncelog_broker.log.config import LogConfig
from oncelog_broker.log.directories.log_changes import WantedLog
from oncelog_broker.log.directories.log_manager import LogManager
from oncelog_broker.metadata import paths
from oncelog_broker.metadata.membership.incarnation import SESSION_FILE, trace_directory
from oncelog_broker.metadata.membership.registration import register_broker
from oncelog_broker.metadata.model.payloads import BrokerRegistration
from oncelog_broker.metadata.opening import configured_opening
from oncelog_broker.metadata.stores.embedded import StoreFileError
from oncelog_broker.metadata.stores.store import MetadataStore
from oncelog_broker.runtime.clock import ManualClock
from oncelog_broker.runtime.disk import RealDisk
from oncelog_broker.runtime.file_lock import LockHeld
from oncelog_broker.starting.data_start import DataStart, has_rights

DISK, CLOCK = RealDisk(), ManualClock()


class Run:
    """A broker of this test, with the parts of `broker.py` that start and stop it."""

    def __init__(self, *directories: Path, **settings: str) -> None:
        settings = {
            "log.dirs": ",".join(map(str, directories)),
            **{k.replace("_", "."): v for k, v in settings.items()},
        }
        config = BrokerConfig.of(settings)
        self.start = DataStart.lock(config, configured_opening(config), host_of(CLOCK, disk=DISK))
        self.store: MetadataStore
        self.logs: LogManager

    async def begin(self, *, is_noted: bool = True) -> Run:
        """Start the broker and register it. With `is_noted` False, the broker is killed after its registration and
        before it writes the identity file.
        """
        try:
            self.store = await self.start.open_store()
        except BaseException:
            self.start.unlock()
            raise
        cluster_id = await self.start.cluster_id(self.store)
        self.logs = self.start.open_logs(
            lambda locked: LogManager.open_locked(locked, node_id=1, cluster_id=cluster_id, disk=DISK, clock=CLOCK)
        )
        await self.start.adopt_unknown(self.store, self.logs, lambda _: {})
        await self.start.note_pending()
        membership = await register_broker(
            self.store,
            1,
            BrokerRegistration(()),
            lambda: self.start.found_logs(self.logs, lambda _: {}),
            process=self.start.process,
        )
        if is_noted:
            await self.start.note_registered(membership, self.store.last_zxid)
        return self

    def write(self, topic: str) -> None:
        opening = self.logs.begin_opening([WantedLog(topic, 0, bytes([7]) * 16, LogConfig())])
        opening.run()
        for log in self.logs.finish_opening(opening):
            log.append_as_leader(bytearray(make_batch(b"x")), leader_epoch=0)  # type: ignore[union-attr]

    async def end(self) -> None:
        await self.start.note_seen(self.store.last_zxid)
        self.logs.close()
        await self.store.close()

    async def topics(self) -> list[str]:
        return await self.store.children(paths.TOPICS)


async def once(*directories: Path, topic: str | None = None, **settings: str) -> DataStart:
    run = await Run(*directories, **settings).begin()
    if topic is not None:
        run.write(topic)
    await run.end()
    return run.start


def content(*directories: Path) -> dict[Path, bytes]:
    """Return the content of all files except the lock files, which contain the process id."""
    files = [path for each in directories for path in each.rglob("*") if path.is_file() and path.name != ".lock"]
    return {path: path.read_bytes() for path in files}


async def refused(*directories: Path, **settings: str) -> StartRefused:
    """Check that the start is refused and that no file was changed; return the refusal."""
    before = content(*directories)
    with pytest.raises(StartRefused) as found:
        await Run(*directories, **settings).begin()
    assert content(*directories) == before
    return found.value


def kinds(refusal: StartRefused) -> Sequence[Kind]:
    return [each.kind for each in refusal.refusals]


def accepts(refusal: StartRefused) -> dict[str, str]:
    return {"start_accept": ",".join(each.accept for each in refusal.refusals)}


async def test_the_directories_are_locked_before_a_store_is_made(tmp_path: Path) -> None:
    """Two brokers start at the same moment in the same new directory."""
    first = Run(tmp_path / "a", tmp_path / "b")
    with pytest.raises(LockHeld):
        Run(tmp_path / "b")
    assert content(tmp_path) == {}
    await (await first.begin()).end()


async def test_the_start_notes_its_identity(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    start = await once(a, b)
    for number in range(2):
        notes = [read_note(DISK, str(each)) for each in (a, b)]
        for note, path in zip(notes, (a, b), strict=True):
            assert note is not None
            assert note.directories[note.directory_id] == str(path)
            assert set(note.directories.values()) == {str(a), str(b)}
            assert (note.process, note.pending, note.registration) == (start.process, "", number)
            assert note.store_place == str(a / "metadata.db")
            assert 0 <= note.broker_epoch <= note.zxid
        start = await once(a, b)


async def test_s70_the_embedded_store_is_used_where_it_lies(tmp_path: Path) -> None:
    a, b, new = tmp_path / "a", tmp_path / "b", tmp_path / "new"
    await once(a, b)
    for directories in ([b, a], [new, a, b]):
        start = await once(*directories)
        assert start.verdict.past.name == "ALONE"
        assert not start.verdict.may_found
    assert not (b / "metadata.db").exists()
    assert not (new / "metadata.db").exists()
    shutil.copy(a / "metadata.db", b)
    with pytest.raises(StoreFileError, match=r"metadata\.db exists in .*a and in .*b, and only one of them"):
        Run(a, b)
    (b / "metadata.db").unlink()
    await once(new, a, b)


async def test_s70_a_process_killed_before_it_noted_its_registration_starts_again(tmp_path: Path) -> None:
    await once(tmp_path)
    killed = await Run(tmp_path).begin(is_noted=False)
    await killed.end()
    start = await once(tmp_path)
    assert start.facts.store.nonce == killed.start.process
    assert start.verdict.errors == ()


async def test_s71_a_store_that_was_put_back_is_older_by_its_last_write(tmp_path: Path) -> None:
    run = await Run(tmp_path).begin()
    older = tmp_path / "backup"
    await run.end()
    shutil.copytree(tmp_path, older)
    run = await Run(tmp_path).begin()
    backup = (older / "metadata.db").read_bytes()
    run.write("orders")
    await run.end()
    shutil.rmtree(older)
    (tmp_path / "metadata.db").write_bytes(backup)
    run = await Run(tmp_path).begin()
    assert run.start.verdict.adopts_unknown
    assert "the store has 1 registrations of this broker" in run.start.verdict.errors[0]
    assert await run.topics() == ["orders"]
    await run.end()
    assert not (await once(tmp_path)).verdict.adopts_unknown


async def test_s71_logs_are_adopted_by_a_start_after_one_that_was_killed_meanwhile(tmp_path: Path) -> None:
    await once(tmp_path)
    backup = (tmp_path / "metadata.db").read_bytes()
    await once(tmp_path, topic="orders")
    (tmp_path / "metadata.db").write_bytes(backup)
    killed = Run(tmp_path)
    await (await killed.start.open_store()).close()
    assert killed.start.verdict.adopts_unknown
    killed.start.unlock()
    run = await Run(tmp_path).begin()
    assert await run.topics() == ["orders"]
    await run.end()


async def test_s72_a_store_that_was_moved_away_is_made_again_from_the_logs(tmp_path: Path) -> None:
    await once(tmp_path, topic="orders")
    (tmp_path / "metadata.db").unlink()
    run = await Run(tmp_path).begin()
    assert await run.topics() == ["orders"]
    assert b"retention.ms" in (await run.store.get(paths.topic_config("orders")))[0]
    await run.end()


async def test_s70_a_store_with_rights_is_not_made_again_from_the_logs(tmp_path: Path) -> None:
    authorizer = {"authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
    await once(tmp_path, topic="orders", **authorizer)
    (tmp_path / "metadata.db").unlink()
    refusal = await refused(tmp_path, **authorizer)
    assert kinds(refusal) == [Kind.NEW_STORE]
    await once(tmp_path, **authorizer, **accepts(refusal))
    await once(tmp_path, **authorizer)


def test_stores_with_access_rights_are_recognised() -> None:
    def of(**settings: str) -> bool:
        return has_rights(BrokerConfig.of({name.replace("_", "."): value for name, value in settings.items()}))

    sasl = {"listeners": "SASL_PLAINTEXT://:9092"}
    assert not of()
    assert of(authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer")
    assert of(**sasl, sasl_enabled_mechanisms="SCRAM-SHA-512")
    assert not of(**sasl, sasl_enabled_mechanisms="PLAIN")
    assert not of(sasl_enabled_mechanisms="SCRAM-SHA-512"), "nobody logs in there"


async def test_s73_an_older_directory_of_a_broker_alone_is_refused(tmp_path: Path) -> None:
    a, b, copy = tmp_path / "a", tmp_path / "b", tmp_path / "copy"
    await once(a, b)
    shutil.copytree(b, copy)
    await once(a, b)
    shutil.rmtree(b)
    shutil.move(copy, b)
    refusal = await refused(a, b)
    assert kinds(refusal) == [Kind.OLDER_DIRECTORY]
    assert str(b) in str(refusal)
    await once(a, b, **accepts(refusal))
    await once(a, b)


async def test_s73_a_lost_directory_of_a_broker_alone_is_refused(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    await once(a, b)
    shutil.move(b, tmp_path / "elsewhere")
    assert kinds(await refused(a)) == [Kind.LOST_DIRECTORY]
    b.mkdir()
    refusal = await refused(a, b)
    assert "is empty, or has other contents" in str(refusal)
    await once(a, b, **accepts(refusal))
    assert kinds(await refused(a, tmp_path / "elsewhere")) == [Kind.OLDER_DIRECTORY, Kind.LOST_DIRECTORY]


async def test_a_first_start_that_was_cut_short_is_begun_again(tmp_path: Path) -> None:
    """The first start may have been interrupted at any point: the directories have a cluster id that no store knows."""
    run = Run(tmp_path)
    run.store = await run.start.open_store()
    await run.store.close()
    run.start.unlock()
    await once(tmp_path)
    shutil.rmtree(tmp_path)
    logs = LogManager.open([tmp_path], node_id=1, cluster_id="c", disk=DISK, clock=CLOCK)
    logs.close()
    assert read_note(DISK, str(tmp_path)) is not None
    assert (await once(tmp_path)).verdict.may_found


async def test_directories_of_apache_kafka_are_taken_over_when_told(tmp_path: Path) -> None:
    logs = LogManager.open([tmp_path], node_id=1, cluster_id="c", disk=DISK, clock=CLOCK)
    opening = logs.begin_opening([WantedLog("orders", 0, bytes([7]) * 16, LogConfig())])
    opening.run()
    logs.finish_opening(opening)
    logs.close()
    (tmp_path / NOTE_FILE).unlink()
    refusal = await refused(tmp_path)
    assert kinds(refusal) == [Kind.NEW_STORE]
    run = await Run(tmp_path, **accepts(refusal)).begin()
    assert await run.topics() == ["orders"]
    await run.end()


def test_the_trace_of_the_process_before_is_found_in_whichever_directory_has_it(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    a.mkdir(), b.mkdir()
    both = [str(a), str(b)]
    assert trace_directory(DISK, both) == str(a)
    (b / SESSION_FILE).write_bytes(b"")
    assert trace_directory(DISK, both) == str(b)
