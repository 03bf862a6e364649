"""A broker whose logs lack records that they had says so in its registration (S81), also if starts in between have
failed or were killed.
"""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest
from tests.support.storage import append

from oncelog_broker.assembly import storage
from oncelog_broker.broker import Broker
from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.log.directories import log_loader
from oncelog_broker.metadata import paths
from oncelog_broker.metadata.membership import incarnation
from oncelog_broker.metadata.model.payloads import parse_incarnation
from oncelog_broker.metadata.stores.in_memory import MemoryTree
from oncelog_broker.runtime.clock import SystemClock
from oncelog_broker.runtime.disk import RealDisk

RECORDS = 3
Change = Callable[[Path, list[int]], None]
"""Changes the file of a log; the numbers are the file's sizes after each record."""


class Scene:
    """The data directory of a killed broker, whose log `orders-0` has three records, all replicated and none synced."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tree = MemoryTree()
        self.data, self.copy = directory / "data", directory / "copy"
        self.monkeypatch = monkeypatch
        self.sizes: list[int] = []

    def broker(self) -> Broker:
        settings = {"log.dirs": str(self.data), "listeners": "PLAINTEXT://127.0.0.1:0", "node.id": "1"}
        return Broker(BrokerConfig.of(settings), store=self.tree)

    async def live(self) -> None:
        broker = self.broker()
        await broker.start()
        for topic in ("orders", "zebras"):
            await broker.parts.serving._services.create_topic(topic)
        logs = broker.parts.storage.logs
        log = logs.get("orders", 0)
        assert log is not None
        for number in range(RECORDS):
            append(log, b"%070d" % number)
            self.sizes.append(log.local.active.size)
        logs.checkpoint_high_watermarks({("orders", 0): RECORDS})
        shutil.copytree(self.data, self.copy)
        await broker.stop()
        self.take_copy()

    def take_copy(self) -> None:
        """Put back the directory as it was when it was copied, as if the process had been killed then."""
        shutil.rmtree(self.data)
        self.copy.rename(self.data)

    async def fails(self, where: Any, name: str, failing: Any) -> None:
        with self.monkeypatch.context() as patched, pytest.raises((OSError, RuntimeError)):
            patched.setattr(where, name, failing)
            await self.broker().start()

    async def says_whole(self) -> bool:
        """Start the broker; return whether its registration says that its logs have all their records."""
        broker = self.broker()
        await broker.start()
        await broker.stop()
        session = await self.tree.open("x", SystemClock())
        (found,) = await session.get_many([paths.incarnation(1)])
        await session.close()
        assert found is not None
        return parse_incarnation(found[0], "x").is_log_tail_kept


def flipped_bit(file: Path, sizes: list[int]) -> None:
    content = bytearray(file.read_bytes())
    content[-3] ^= 4
    file.write_bytes(content)


def one_record_less(file: Path, sizes: list[int]) -> None:
    file.write_bytes(file.read_bytes()[: sizes[-2]])


def no_file(file: Path, sizes: list[int]) -> None:
    file.unlink()


async def nothing(scene: Scene) -> None: ...


def no_room(*_: Any, **__: Any) -> NoReturn:
    raise OSError(errno.ENOSPC, "no space")


async def doubt_not_written(scene: Scene) -> None:
    await scene.fails(incarnation, "leave_trace", no_room)


async def note_not_written(scene: Scene) -> None:
    """The disk is full when recovery is about to cut the log, so the log stays as it is, and offline."""
    real = RealDisk.replace_file

    def replace_file(disk: RealDisk, path: str, *arguments: Any, **options: Any) -> None:
        if path.endswith("oncelog.cut-log"):
            no_room()
        real(disk, path, *arguments, **options)

    with scene.monkeypatch.context() as patched:
        patched.setattr(RealDisk, "replace_file", replace_file)
        broker = scene.broker()
        await broker.start()
        assert ("orders", 0) in broker.parts.storage.logs.failures
        await broker.stop()


async def killed_after_recovery(scene: Scene) -> None:
    def die(*_: Any, **__: Any) -> NoReturn:
        shutil.copytree(scene.data, scene.copy)
        raise RuntimeError

    await scene.fails(storage, "Predecessor", die)
    scene.take_copy()


async def too_few_descriptors(scene: Scene) -> None:
    real = log_loader.PartitionLog.open

    def open_first(path: str, **options: Any) -> Any:
        log = real(path, **options)
        if options["topic"] == "orders":
            return log
        raise OSError(errno.EMFILE, "too many open files")

    find = log_loader.LogLoader.find

    def find_in_order(loader: log_loader.LogLoader) -> None:
        find(loader)
        loader.found.sort()

    scene.monkeypatch.setattr(log_loader.LogLoader, "find", find_in_order)
    await scene.fails(log_loader.PartitionLog, "open", open_first)


@pytest.mark.parametrize(
    ("change", "between", "is_new_boot"),
    [
        pytest.param(flipped_bit, nothing, False, id="recovery cuts a flipped bit"),
        pytest.param(flipped_bit, doubt_not_written, False, id="the disk is full when the start notes its doubt"),
        pytest.param(flipped_bit, note_not_written, False, id="the disk is full when recovery notes the cut"),
        pytest.param(flipped_bit, killed_after_recovery, False, id="killed after recovery"),
        pytest.param(flipped_bit, too_few_descriptors, False, id="too few descriptors for the next log"),
        pytest.param(one_record_less, nothing, False, id="a record less, at the end of a batch"),
        pytest.param(no_file, nothing, False, id="the file of the log is gone"),
        pytest.param(one_record_less, nothing, True, id="a power cut"),
        pytest.param(one_record_less, doubt_not_written, True, id="a power cut, and a start that notes no doubt"),
    ],
)
async def test_s81_a_broker_with_shortened_logs_registers_as_unsure(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Change,
    between: Callable[[Scene], Any],
    is_new_boot: bool,
) -> None:
    scene = Scene(tmp_path, monkeypatch)
    await scene.live()
    (file,) = (scene.data / "orders-0").glob("*.log")
    change(file, scene.sizes)
    if is_new_boot:
        monkeypatch.setattr(RealDisk, "boot_id", lambda disk: "another boot")
    await between(scene)
    assert not await scene.says_whole()
    assert await scene.says_whole(), "the registration has told the cluster, so the next one need not"


async def test_s81_a_broker_with_whole_logs_registers_as_sure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(tmp_path, monkeypatch)
    await scene.live()
    assert await scene.says_whole()
