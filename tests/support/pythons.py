"""`make test-pythons` runs unit, property and client tests with every Python on this machine, on both event loops.

The program searches for interpreters on PATH (python3.11, python3.12, ...) and among those of pyenv and uv. PYTHONS may
list further interpreters: `make test-pythons PYTHONS="/opt/python3.14/bin/python3"`. Each interpreter gets its own
environment in .venvs/, named after the Python version, with the packages of constraints.txt. `ONLY=3.13` tests only
that version. If a version is found several times, it is tested once.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
ENVIRONMENTS: Final = ROOT / ".venvs"
OLDEST: Final = (3, 11)
EXPECTED: Final = ("3.11", "3.12", "3.13", "3.14")
"""The Python versions that the project supports; the report names an expected version that was not found. Later Python
versions are tested, too.
"""
NAME: Final = re.compile(r"python3\.(\d+)")
INSTALLED: Final = (".pyenv/versions/*/bin/python", ".local/share/uv/python/cpython-*/bin/python3")
"""Patterns of interpreter paths, relative to the home directory."""
ASKED: Final = (
    "import sys, importlib.util as u; v = sys.version_info;"
    "print(*v[:3], v.releaselevel, sys.implementation.name, u.find_spec('ensurepip') is not None)"
)
CLIENT: Final = tuple(
    f"tests/integration/cases/{name}.py"
    for name in (
        "test_client",
        "test_client_contract",
        "test_cli",
        "test_consume_process_produce",
        "test_groups_command",
        "test_oncelog_transactions",
        "test_pytest_plugin",
    )
)
"""Tests of the client against a live broker, which run with the same Python."""
TESTS: Final[Mapping[str, tuple[str, ...]]] = {
    "asyncio": ("tests/unit", "tests/property", *CLIENT),
    # The uvloop run omits tests/property, which does not depend on the event loop.
    "uvloop": ("tests/unit", *CLIENT),
}
"""Value of ONCELOG_TEST_LOOP -> the tests to run on that event loop."""
UNUSABLE: Final = 4
"""The time limit, in seconds, for a program to report its Python version."""


class Interpreter(NamedTuple):
    """A Python version, and the first path at which it was found."""

    version: tuple[int, int, int]
    path: Path
    makes_environments: bool = True
    """Whether the interpreter can create environments; False if ensurepip is missing, as in some of Debian's Python
    packages.
    """

    @property
    def name(self) -> str:
        return ".".join(map(str, self.version))

    @property
    def minor(self) -> str:
        return f"{self.version[0]}.{self.version[1]}"


def candidates(environment: Mapping[str, str], home: Path) -> Iterator[Path]:
    """Yield programs that may be a Python: those in PYTHONS, those on PATH, and those of pyenv and uv."""
    yield from map(Path, environment.get("PYTHONS", "").split())
    for directory in filter(None, environment.get("PATH", "").split(os.pathsep)):
        if Path(directory).is_dir():
            yield from sorted(path for path in Path(directory).iterdir() if NAME.fullmatch(path.name))
    for pattern in INSTALLED:
        yield from sorted(home.glob(pattern))


def interpreter_at(path: Path) -> Interpreter | None:
    """Return the interpreter at this path; None for a pre-release, another implementation, or a program that does not
    run, such as pyenv's inactive versions.
    """
    try:
        said = subprocess.run([path, "-I", "-c", ASKED], capture_output=True, text=True, timeout=UNUSABLE, check=True)
        major, minor, micro, level, implementation, makes_environments = said.stdout.split()
        if (level, implementation) != ("final", "cpython"):
            return None
        return Interpreter((int(major), int(minor), int(micro)), path, makes_environments == "True")
    except (OSError, subprocess.SubprocessError, ValueError):
        return None


def found(paths: Iterable[Path], ask: Callable[[Path], Interpreter | None] = interpreter_at) -> list[Interpreter]:
    """Return one interpreter per supported version, in order; prefer those that can create environments."""
    known: dict[tuple[int, int, int], Interpreter] = {}
    for path in paths:
        interpreter = ask(path)
        if interpreter is None or interpreter.version[:2] < OLDEST:
            continue
        before = known.get(interpreter.version)
        if before is None or (interpreter.makes_environments and not before.makes_environments):
            known[interpreter.version] = interpreter
    return [known[version] for version in sorted(known)]


def missing(interpreters: Iterable[Interpreter]) -> list[str]:
    """Return the expected versions that none of these interpreters has."""
    return [minor for minor in EXPECTED if minor not in {each.minor for each in interpreters}]


def environment_for(interpreter: Interpreter) -> Path:
    """Return the Python of the interpreter's environment; create or update the environment if needed. Raises
    CalledProcessError.
    """
    directory = ENVIRONMENTS / interpreter.name
    python, stamp = directory / "bin/python", directory / ".installed"
    made_of = [ROOT / "pyproject.toml", ROOT / "constraints.txt"]
    if stamp.exists() and all(stamp.stat().st_mtime > file.stat().st_mtime for file in made_of):
        return python
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", "constraints.txt", "-e"]
    subprocess.run([interpreter.path, "-m", "venv", directory], check=True)
    subprocess.run([*install, ".[broker,console,otel,test]"], cwd=ROOT, check=True)
    java = subprocess.run([python, "-m", "oncelog_broker.local_cluster.java"], capture_output=True, check=False)
    if java.returncode:
        subprocess.run([*install, ".[zookeeper]"], cwd=ROOT, check=True)
    stamp.touch()
    return python


def tested(interpreter: Interpreter, loops: Iterable[str], arguments: list[str]) -> Iterator[tuple[str, str]]:
    """Yield (event loop, result) for each loop; the result is "passed" or a description of the error."""
    try:
        python = environment_for(interpreter)
    except subprocess.CalledProcessError as error:
        yield "-", f"no environment could be made: {' '.join(map(str, error.cmd[:4]))}... ended with {error.returncode}"
        return
    for loop in loops:
        print(f"\n--- Python {interpreter.name}, {loop}", flush=True)
        command = [python, "-m", "pytest", "-q", "--dist=worksteal", *arguments, *TESTS[loop]]
        code = subprocess.run(command, cwd=ROOT, env={**os.environ, "ONCELOG_TEST_LOOP": loop}, check=False).returncode
        yield loop, "passed" if code == 0 else f"failed: pytest ended with {code}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.pythons", description=__doc__)
    parser.add_argument("--only", action="append", default=[], metavar="3.N", help="these versions alone")
    parser.add_argument("--loop", action="append", choices=sorted(TESTS), help="on this event loop alone")
    parser.add_argument("--list", action="store_true", help="say what there is, and test nothing")
    parser.add_argument("arguments", nargs="*", help="for pytest, behind --")
    options = parser.parse_args()
    interpreters = found(candidates(os.environ, Path.home()))
    for each in interpreters:
        passed_over = (
            "" if each.makes_environments else " (passed over: it has no ensurepip, so it makes no environments)"
        )
        print(f"Python {each.name}: {each.path}{passed_over}")
    interpreters = [each for each in interpreters if each.makes_environments]
    for minor in missing(interpreters):
        print(f"Python {minor}: not found")
    wanted = [each for each in interpreters if not options.only or {each.minor, each.name} & set(options.only)]
    if not wanted:
        print("no Python to test on: name programs in PYTHONS", file=sys.stderr)
        return 1
    if options.list:
        return 0
    loops = options.loop or list(TESTS)
    outcomes = [(each, *outcome) for each in wanted for outcome in tested(each, loops, options.arguments)]
    print()
    for interpreter, loop, what in outcomes:
        print(f"Python {interpreter.name}, {loop}: {what}")
    for minor in missing(interpreters):
        print(f"Python {minor}: not found, so not tested")
    return int(any(what != "passed" for *_, what in outcomes))


if __name__ == "__main__":
    sys.exit(main())
