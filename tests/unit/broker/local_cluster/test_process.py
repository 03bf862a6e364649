from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from oncelog_broker.local_cluster.process import LocalProcess, started_at

SLEEP = ["sleep", "1000"]
GENEROUS_SECONDS = 30.0


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


def test_the_output_of_a_process_is_in_its_log(log: Path) -> None:
    process = LocalProcess.start(["sh", "-c", "echo out; echo err >&2"], log)
    assert process.wait(GENEROUS_SECONDS)
    assert sorted(log.read_text().split()) == ["err", "out"]


def test_another_run_recognises_a_process_by_pid_and_start_time(log: Path) -> None:
    ours = LocalProcess.start(SLEEP, log)
    theirs = LocalProcess(ours.pid, ours.started)
    assert theirs.is_running
    theirs.kill()
    assert not ours.is_running
    assert not theirs.is_running


def test_a_pid_that_was_reused_is_left_alone(log: Path) -> None:
    newer = LocalProcess.start(SLEEP, log)
    older = LocalProcess(newer.pid, "long ago")
    assert not older.is_running
    older.kill()
    older.pause()
    assert older.stop()
    assert newer.is_running
    assert not newer.is_paused
    newer.kill()


def test_a_process_is_paused_and_resumed(log: Path) -> None:
    process = LocalProcess.start(SLEEP, log)
    process.pause()
    assert process.is_paused
    assert process.is_running
    process.resume()
    assert process.stop(), "SIGTERM is enough"


def test_a_paused_process_can_be_stopped(log: Path) -> None:
    process = LocalProcess.start(SLEEP, log)
    process.pause()
    assert process.stop(GENEROUS_SECONDS)


def test_a_process_that_ignores_sigterm_is_killed(log: Path) -> None:
    process = LocalProcess.start(["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1000; done"], log)
    while "ready" not in log.read_text():
        assert process.is_running
    assert not process.stop(0.2)
    assert not process.is_running


def test_a_process_gets_no_signal_of_the_terminal(log: Path) -> None:
    process = LocalProcess.start(SLEEP, log)
    assert os.getsid(process.pid) != os.getsid(0)
    process.kill()


def test_a_process_that_dies_with_its_parent_is_the_command_itself(log: Path) -> None:
    process = LocalProcess.start(["sh", "-c", "echo $$; exec sleep 1000"], log, dies_with_us=True)
    while not log.read_text():
        assert process.is_running
    assert int(log.read_text()) == process.pid
    process.kill()


def test_a_process_runs_once_noted_and_does_not_see_the_handshake(log: Path) -> None:
    noted: list[tuple[LocalProcess, bool]] = []
    process = LocalProcess.start(["cat"], log, note=lambda process: noted.append((process, process.is_running)))
    assert process.wait(GENEROUS_SECONDS), "there is nothing to read"
    assert [(each.pid, each.started, was_there) for each, was_there in noted] == [(process.pid, process.started, True)]
    assert log.read_text() == ""


def test_a_process_that_cannot_be_noted_never_runs(tmp_path: Path, log: Path) -> None:
    started: list[LocalProcess] = []

    def fail(process: LocalProcess) -> None:
        started.append(process)
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full"):
        LocalProcess.start(["touch", str(tmp_path / "ran")], log, note=fail)
    assert started[0].wait(GENEROUS_SECONDS)
    assert not (tmp_path / "ran").exists()


DIES_AS_IT_NOTES = """
import os, signal, sys
from pathlib import Path
from oncelog_broker.local_cluster.process import LocalProcess

def die(process):
    print(process.pid, process.started, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

LocalProcess.start(["touch", sys.argv[1]], Path(sys.argv[2]), note=die)
"""


def test_an_unnoted_process_never_runs_though_the_command_is_killed(tmp_path: Path, log: Path) -> None:
    command = [sys.executable, "-c", DIES_AS_IT_NOTES, str(tmp_path / "ran"), str(log)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=GENEROUS_SECONDS, check=False)
    assert done.returncode == -signal.SIGKILL
    pid, _, started = done.stdout.strip().partition(" ")
    assert LocalProcess(int(pid), started).wait(GENEROUS_SECONDS)
    assert not (tmp_path / "ran").exists()


def test_a_missing_process_has_no_start_time() -> None:
    with subprocess.Popen(["true"]) as ended:
        pass
    assert started_at(ended.pid) is None
    assert LocalProcess(ended.pid, "then").wait(0)


def test_the_end_of_a_process_is_noticed_whatever_its_descriptor_number(log: Path) -> None:
    """A process with many connections has file descriptors with numbers that select() cannot handle."""
    with many_descriptors(1100):
        process = LocalProcess.start(SLEEP, log)
        process.kill()
        assert not process.is_running


@contextmanager
def many_descriptors(count: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2 * count:
        pytest.skip(f"only {hard} descriptors are to be had")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * count), hard))
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(count)]
    try:
        yield
    finally:
        for each in held:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
