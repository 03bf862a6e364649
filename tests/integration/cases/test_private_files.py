"""Tests that all files of a broker are private to its owner, whatever the umask is (S96)."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from broker_process import BrokerProcess
from foreign_clients import TIMEOUT_SECONDS
from warm_commands import COMMAND

from oncelog import Producer
from oncelog_broker.local_cluster.ports import own_ports

SECRETS = ("metadata.db", "metadata.db-wal", "metadata.db-shm", ".oncelog-session")


def with_umask(directory: Path, umask: int) -> str:
    """Write a script that runs `oncelog` with this umask, and return its path."""
    path = directory / "oncelog-with-umask"
    path.write_text(f'#!/bin/sh\numask {umask:03o}\nexec {COMMAND} "$@"\n')
    path.chmod(0o755)
    return str(path)


def found(directory: Path) -> Iterator[tuple[Path, int]]:
    for path in (directory, *directory.rglob("*")):
        yield path, stat.S_IMODE(path.lstat().st_mode)


@pytest.mark.parametrize("umask", [0o000, 0o022])
@pytest.mark.parametrize("is_there", [False, True], ids=["made by the broker", "a volume that others may read"])
async def test_s96_a_broker_s_files_are_its_owner_s(tmp_path: Path, umask: int, is_there: bool) -> None:
    data = tmp_path / "above" / "data"
    if is_there:
        data.mkdir(parents=True)
        for each in (data, data.parent):
            each.chmod(0o777)
    (tmp_path / "above").mkdir(exist_ok=True)
    broker = BrokerProcess(
        data,
        {
            "listeners": "PLAINTEXT://127.0.0.1:0,SASL://127.0.0.1:0",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "SCRAM-SHA-256",
            "sasl.scram.first.users": "admin=secret",
            "auto.create.topics.enable": "true",
            "log.cleaner.backoff.ms": "100",
        },
        command=with_umask(tmp_path, umask),
    )
    # the second start of a broker writes files that the first start does not write, such as checkpoints
    for number in range(2):
        broker.start()
        try:
            async with Producer(broker.address, transactional_id="t", transaction_timeout_ms=60_000) as producer:
                producer.begin_transaction()
                await (await producer.send("orders", b"x" * 1000))
                await producer.commit_transaction()
            check(data, is_there)
        finally:
            if number:
                broker.stop()
            else:
                broker.kill()
    check(data, is_there)
    assert "metadata.db" in {path.name for path, _ in found(data)} or broker.new_chroot is not None


def check(data: Path, is_there: bool) -> None:
    for path, mode in found(data):
        if path == data and is_there:
            continue
        assert not mode & 0o007, f"{path} {mode:o}"
        assert not mode & 0o020, f"{path} {mode:o}: its group may write"
        if path.is_dir() or path.name in SECRETS:
            assert not mode & 0o077, f"{path} {mode:o}"


def test_s96_a_local_cluster_s_files_are_its_owner_s(tmp_path: Path) -> None:
    data, command = tmp_path / "above" / "cluster", with_umask(tmp_path, 0o000)
    (port,) = own_ports(1)

    def cluster(*arguments: str) -> None:
        subprocess.run(
            [command, "cluster", *arguments, "--data", str(data)],
            check=True,
            timeout=2 * TIMEOUT_SECONDS,
            env=os.environ,
        )

    cluster("up", "--brokers", "1", "--port", str(port.number))
    try:
        for path, mode in found(data):
            assert not mode & 0o007, f"{path} {mode:o}"
        assert not stat.S_IMODE(data.stat().st_mode) & 0o077
        assert stat.S_IMODE(data.parent.stat().st_mode) == 0o755
    finally:
        cluster("down")
