"""Tests rskafka, a Rust client that reads zstd and sends Fetch v4: the broker sends it zstd batches unchanged."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import or_skip
from maven import BUILD, HERE, Unavailable, need

FETCH_SECONDS = 120
BUILD_SECONDS = 400
"""Limit in seconds for the first build, on two slow cores."""
RUN_SECONDS = 60


def built() -> Path:
    """The program. Raises Unavailable."""
    need("cargo")
    directory = BUILD / "rust"
    shutil.copytree(HERE / "rust", directory / "source", dirs_exist_ok=True)
    environment = {**os.environ, "CARGO_TARGET_DIR": str(directory)}
    for command, seconds in ((["cargo", "fetch"], FETCH_SECONDS), (["cargo", "build", "--offline"], BUILD_SECONDS)):
        try:
            done = subprocess.run(
                command,
                cwd=directory / "source",
                env=environment,
                capture_output=True,
                text=True,
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise Unavailable(f"{' '.join(command)}: not done in {seconds} s") from None
        if done.returncode and command[1] == "fetch":
            raise Unavailable(f"its crates cannot be fetched: {done.stderr.strip()[-300:]}")
        assert done.returncode == 0, done.stderr
    return directory / "debug" / "oncelog-interop"


@pytest.mark.timeout(FETCH_SECONDS + BUILD_SECONDS + RUN_SECONDS)
def test_zstd_is_read_with_an_old_fetch(address: str, topic: str) -> None:
    program = or_skip(built)
    first = address.partition(",")[0]
    done = subprocess.run(
        [str(program), first, topic], capture_output=True, text=True, timeout=RUN_SECONDS, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split() == ["one", "two", "three"]
