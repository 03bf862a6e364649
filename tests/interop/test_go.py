"""Tests the example in Go: an HTTP request makes the broker lose the response to an EndTxn, and the client franz-go
handles the loss correctly.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "tested_application" / "go"
FETCH_SECONDS = 120.0
BUILD_SECONDS = 400.0
"""Limit in seconds for the first build, on two slow cores."""


@pytest.fixture(scope="module")
def go() -> str:
    """Return the path of the Go toolchain; skip the test if it is missing or lacks what the example needs."""
    path = shutil.which("go")
    if path is None:
        pytest.skip("Go is not installed")
    fetched = subprocess.run(
        [path, "mod", "download"], cwd=EXAMPLE, capture_output=True, text=True, timeout=FETCH_SECONDS
    )
    if fetched.returncode != 0:
        pytest.skip(f"the modules of the example cannot be fetched: {fetched.stderr.strip()[-200:]}")
    return path


@pytest.mark.timeout(BUILD_SECONDS + FETCH_SECONDS)
def test_a_go_program_bears_a_lost_answer(go: str) -> None:
    oncelog = str(Path(sys.executable).parent / "oncelog")
    done = subprocess.run(
        [go, "test", "-count=1", "-p=1", "./..."],
        cwd=EXAMPLE,
        env={**os.environ, "ONCELOG": os.environ.get("ONCELOG", oncelog)},
        capture_output=True,
        text=True,
        timeout=BUILD_SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ok" in done.stdout
