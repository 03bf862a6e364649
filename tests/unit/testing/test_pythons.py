"""The Python versions that `make test-pythons` finds and tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.pythons import CLIENT, ROOT, TESTS, Interpreter, candidates, found, interpreter_at, missing


def program(path: Path, says: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{says or 'exit 1'}\n")
    path.chmod(0o755)
    return path


def test_interpreters_are_searched_in_path_pyenv_uv_and_given_places(tmp_path: Path) -> None:
    wanted = [
        program(tmp_path / "opt/python"),
        program(tmp_path / "bin/python3.11"),
        program(tmp_path / "bin/python3.14"),
        program(tmp_path / "home/.pyenv/versions/3.12.1/bin/python"),
        program(tmp_path / "home/.local/share/uv/python/cpython-3.13.2-linux/bin/python3"),
    ]
    program(tmp_path / "bin/python3.12-config")
    program(tmp_path / "bin/python3")
    environment = {"PATH": f"{tmp_path / 'bin'}:{tmp_path / 'nowhere'}", "PYTHONS": str(wanted[0])}
    assert list(candidates(environment, tmp_path / "home")) == wanted


def test_one_interpreter_per_version_is_taken_and_others_skipped(tmp_path: Path) -> None:
    says = {
        "no": "exit 1",
        "nonsense": "echo hello",
        "pypy": "echo 3 11 9 final pypy True",
        "beta": "echo 3 15 0 beta cpython True",
        "old": "echo 3 10 1 final cpython True",
        "debian": "echo 3 12 1 final cpython False",
        "own": "echo 3 12 1 final cpython True",
        "again": "echo 3 12 1 final cpython True",
        "new": "echo 3 14 0 final cpython True",
    }
    paths = [program(tmp_path / name, text) for name, text in says.items()]
    interpreters = found([*paths, tmp_path / "not there"])
    assert [(each.name, each.path.name) for each in interpreters] == [("3.12.1", "own"), ("3.14.0", "new")]
    assert missing(interpreters) == ["3.11", "3.13"]


def test_the_running_interpreter_is_known() -> None:
    assert interpreter_at(Path(sys.executable)) == Interpreter(sys.version_info[:3], Path(sys.executable))


def test_a_machine_without_interpreters_fails(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.pythons", "--list"],
        cwd=ROOT,
        env={**os.environ, "PATH": "", "HOME": str(tmp_path), "PYTHONS": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "Python 3.14: not found" in done.stdout
    assert "no Python to test on" in done.stderr


def test_the_tests_to_run_exist() -> None:
    assert set(TESTS) == {"asyncio", "uvloop"}
    assert [path for path in CLIENT if not (ROOT / path).is_file()] == []


def test_the_requested_event_loop_is_used(tmp_path: Path) -> None:
    """The test runs in a separate process, because the setting is read when pytest starts."""
    for loop, expected in (("asyncio", "asyncio"), ("uvloop", "uvloop")):
        test = ROOT / "tests/data/loop_in_use.py"
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(test)],
            cwd=ROOT,
            env={**os.environ, "ONCELOG_TEST_LOOP": loop, "EXPECTED_LOOP": expected},
            capture_output=True,
            text=True,
            check=False,
        )
        assert "1 passed" in done.stdout, done.stdout
