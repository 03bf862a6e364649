"""A `make compose-test` that a signal ends leaves nothing behind; a script replaces Docker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 200.0
"""A limit for a broken program only: every wait ends with an event."""
DOCKER = """#!/bin/sh
echo "$@" >> "$DOCKER_LOG"
case "$*" in
    *" up "*) exec sleep 1000 ;;
    *" down "*) test -e "$DOCKER_LOG.failed" || { touch "$DOCKER_LOG.failed"; exit 1; } ;;
    *"ps --all"*) echo container ;;
esac
"""
RUN = """
import subprocess, sys, os
import compose_test.run as run
run.PORTS = ()
provide_images = run.provide_images

def providing(engine, directory, names):
    # A process that an engine leaves behind, like the one that answers to names in a network.
    left = subprocess.Popen(["sleep", "1000"], env={**os.environ, "STORAGE": str(directory)}, start_new_session=True)
    print(directory, left.pid, flush=True)
    return {}

run.provide_images = providing
sys.exit(run.main())
"""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_compose_test_and_undoes_its_changes(number: signal.Signals, tmp_path: Path) -> None:
    docker, log = tmp_path / "docker", tmp_path / "log"
    docker.write_text(DOCKER)
    docker.chmod(0o755)
    path = os.pathsep.join(["deploy", "tests/integration", "tests/cluster", "."])
    environment = {
        **os.environ,
        "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": path,
        "DOCKER_LOG": str(log),
        "TMPDIR": str(tmp_path),
    }
    run = subprocess.Popen(
        [sys.executable, "-c", RUN],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: [signal.signal(each, signal.SIG_DFL) for each in (signal.SIGINT, signal.SIGHUP)],
    )
    assert run.stdout is not None
    directory, left = run.stdout.readline().split()
    assert Path(directory).is_dir()
    until(lambda: " up " in log.read_text(), "the containers are started")
    run.send_signal(number)
    until(lambda: " down " in log.read_text(), "what was begun is undone")
    run.send_signal(number)  # an impatient user sends the signal again
    output, errors = run.communicate(timeout=PATIENCE_SECONDS)
    assert run.returncode == 128 + number, errors
    assert "ended by" in output
    assert log.read_text().count(" down ") == 2, "the second one though the first has failed"
    assert not Path(directory).exists()
    until(lambda: not is_running(int(left)), "no process is left")


def until(condition: object, what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
