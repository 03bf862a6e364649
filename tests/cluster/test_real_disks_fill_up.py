"""Tests file systems that are really full, and are enlarged while they are mounted."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from final_state import settle_and_check
from recording_clients import PRODUCERS, Writer
from replicated_cluster import BROKERS, ReplicatedCluster

from oncelog_testing.history.events import Place
from oncelog_testing.history.recorder import History

SIZE_MB, MENDED_MB = 12, 24
"""Sizes of the file system in MB: a broker with some small topics uses a part of the first size; unused memory is not
allocated.
"""


class MemoryDisk:
    """A file system of SIZE_MB in memory; a context manager that mounts it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> MemoryDisk:
        self.path.mkdir(parents=True)
        made = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={SIZE_MB}m", "tmpfs", self.path], capture_output=True, text=True
        )
        if made.returncode:
            pytest.skip(f"nothing can be mounted here: {made.stderr.strip()}")
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run(["umount", "--lazy", self.path], check=True)

    def fill(self) -> None:
        """Fill the file system until no byte is free."""
        block = bytes(1 << 16)
        with (self.path / "ballast").open("ab", buffering=0) as ballast:
            while block:
                try:
                    ballast.write(block)
                except OSError as error:
                    assert error.errno == errno.ENOSPC, error
                    block = block[: len(block) // 2]

    def grow(self) -> None:
        self._mount_again(MENDED_MB)

    def mend(self) -> None:
        """Give the file system free space again."""
        (self.path / "ballast").unlink(missing_ok=True)
        self._mount_again(SIZE_MB)

    def _mount_again(self, megabytes: int) -> None:
        subprocess.run(["mount", "-o", f"remount,size={megabytes}m", self.path], check=True)


@pytest.fixture(scope="module")
def on_small_disks(
    chroots: Callable[[], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[ReplicatedCluster, dict[int, MemoryDisk]]]:
    if os.geteuid() != 0:
        pytest.skip("only root may mount a file system of a certain size")
    directory = tmp_path_factory.mktemp("small-disks")
    with ExitStack() as mounted:
        disks = {node_id: mounted.enter_context(MemoryDisk(directory / f"broker{node_id}")) for node_id in BROKERS}
        with ReplicatedCluster(directory, chroots(), {"replica.lag.time.max.ms": "2000"}) as cluster:
            yield cluster, disks


@pytest.mark.parametrize(("whose", "library"), [("follower", "librdkafka"), ("leader", "oncelog")])
def test_c21_a_file_system_is_full(
    on_small_disks: tuple[ReplicatedCluster, dict[int, MemoryDisk]],
    history: History,
    topic: str,
    whose: str,
    library: str,
) -> None:
    """The full disk belongs to the controller, which either follows or leads: producers continue, and the broker
    returns when there is space again.
    """
    cluster, disks = on_small_disks
    cluster.mend()
    controller = cluster.controller()
    others = [node_id for node_id in BROKERS if node_id != controller]
    cluster.create_topic(topic, (controller, *others) if whose == "leader" else (*others, controller))
    disk = disks[controller]
    with PRODUCERS[library](cluster.addresses, history, "anna") as producer:
        with Writer(producer, Place(topic)) as writer:
            writer.until_more(10)
            try:
                disk.fill()
                cluster.until(lambda: controller not in cluster.part(topic).isr, "it has left the ISR")
                cluster.until_led(topic, but_by=controller)
                writer.until_more(10)
                disk.grow()
                writer.until_more(10)
                cluster.until_whole(topic)
            finally:
                disk.mend()
        assert producer.acknowledged == producer.sent
    settle_and_check(cluster, history, topic)
