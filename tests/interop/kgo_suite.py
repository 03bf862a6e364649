"""Builds the test suite of franz-go's client kgo from its published Go module and runs it against our brokers.

The module proxy delivers the tests together with the client, so nothing of it is stored here. The suite runs in two
variants: as published, where the tests choose the protocol of their groups themselves (classic, KIP-848 or share
groups), and with `ServerSideBalancer()` in the options of every client, so that the broker assigns the partitions
(KIP-848) in every test with a group. `EDITS` lists the other changes.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Self

from maven import BUILD, FETCH_SECONDS, Unavailable, need

MODULE = "github.com/twmb/franz-go"
RELEASE = "v1.22.3"
BUILD_SECONDS = 600
PATIENT = "KGO_TEST_PATIENT"
"""Environment variable: if it is set, the consumers of TestShareGroupETL tolerate the errors with which a client says
that it cannot reach a broker. The suite itself has no test in which a broker dies, and its other chains cannot bear
that: TestGroupETL counts each offset that a group without transactions reads twice, and TestTxnEtl ends at the first
error of a connection.
"""
RESULT = re.compile(r"^\s*--- (PASS|FAIL|SKIP): (\S+) \(", re.MULTILINE)


class Edit(NamedTuple):
    """A change of a file of the suite: `before`, which occurs there once, is replaced by `after`."""

    file: str
    before: str
    after: str


EDITS = (
    # The test counts the topics with records, also the internal topic, whose records it does not want.
    Edit(
        "consumer_test.go",
        "if len(ft.Records()) > 0 {\n\t\t\t\tseen[",
        "if len(ft.Records()) > 0 && slices.Contains(want, ft.Topic) {\n\t\t\t\tseen[",
    ),
    Edit(
        "share_test.go",
        't.Errorf("%s: fetch error: %v", name, fetchErr)',
        f'if os.Getenv("{PATIENT}") == "" {{ t.Errorf("%s: fetch error: %v", name, fetchErr) }}',
    ),
    Edit("share_test.go", '\t"errors"\n', '\t"errors"\n\t"os"\n'),
)
SERVER_SIDE = Edit("helpers_test.go", "\t\tgetSeedBrokers(),\n", "\t\tServerSideBalancer(),\n\t\tgetSeedBrokers(),\n")


class Outcome(NamedTuple):
    """What one run of the suite reported, by the names of tests and subtests."""

    passed: frozenset[str]
    failed: frozenset[str]
    skipped: frozenset[str]
    code: int
    """The exit code of the suite, 0 if every test passed or was skipped."""


def built(server_side: bool) -> Path:
    """Build the suite and return its program. `server_side`: the variant in which the broker assigns the partitions in
    all groups. Raises Unavailable if Go or the module cannot be had.
    """
    need("go")
    name = "server-side" if server_side else "published"
    directory = BUILD / f"kgo-{RELEASE}-{name}"
    program = directory / "kgo.test"
    if program.exists():
        return program
    source = directory / "source"
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(_module(), source)
    for path in (source, *source.rglob("*")):
        path.chmod(path.stat().st_mode | 0o200)  # Go's module cache is read-only
    for edit in (*EDITS, *((SERVER_SIDE,) if server_side else ())):
        path = source / "pkg" / "kgo" / edit.file
        text = path.read_text()
        assert text.count(edit.before) == 1, f"{edit.file} of {RELEASE} is not as expected: {edit.before!r}"
        path.write_text(text.replace(edit.before, edit.after))
    _run(["go", "mod", "download"], source, FETCH_SECONDS)
    compiled = _run(["go", "test", "-c", "-o", str(program), "./pkg/kgo"], source, BUILD_SECONDS)
    assert compiled.returncode == 0, compiled.stderr
    return program


def _module() -> Path:
    """Return the directory of the module in Go's module cache. Raises Unavailable."""
    done = _run(["go", "mod", "download", "-json", f"{MODULE}@{RELEASE}"], BUILD.parent, FETCH_SECONDS)
    return Path(json.loads(done.stdout)["Dir"])


def _run(command: list[str], directory: Path, seconds: float) -> subprocess.CompletedProcess[str]:
    directory.mkdir(parents=True, exist_ok=True)
    try:
        done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{' '.join(command)}: not done in {seconds} s") from None
    if done.returncode and command[1] == "mod":
        raise Unavailable(f"{MODULE} {RELEASE} cannot be fetched: {(done.stderr or done.stdout).strip()[-300:]}")
    return done


class KgoRun:
    """One run of the suite: a process that writes to `log`. As a context manager it kills a process that still runs."""

    def __init__(
        self, program: Path, addresses: str, arguments: Mapping[str, str], settings: Mapping[str, str], log: Path
    ) -> None:
        """`arguments` are flags of Go's test programs without `-test.`; `settings` are environment variables of the
        suite, whose names begin with KGO_.
        """
        self.log = log
        flags = [f"-test.{name}={value}" for name, value in arguments.items()]
        environment = {**os.environ, "KGO_SEEDS": addresses, "KGO_LOG_LEVEL": "none", **settings}
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [str(program), "-test.v=true", *flags],
                cwd=program.parent / "source" / "pkg" / "kgo",
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def wait(self, seconds: float) -> bool:
        """Wait for at most this long; return whether the suite has ended."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def outcome(self) -> Outcome:
        """Return the results of a run that has ended."""
        found: dict[str, set[str]] = {"PASS": set(), "FAIL": set(), "SKIP": set()}
        for verdict, test in RESULT.findall(self.log.read_text(errors="replace")):
            found[verdict].add(test)
        passed, failed, skipped = (frozenset(found[verdict]) for verdict in ("PASS", "FAIL", "SKIP"))
        return Outcome(passed, failed, skipped, self._process.returncode)

    def failures(self) -> str:
        """Return the last lines of the log and all lines that the tests printed about failures."""
        lines = self.log.read_text(errors="replace").splitlines()
        told = [line for line in lines if "--- FAIL" in line or "_test.go:" in line or line.startswith("panic")]
        return "\n".join([*told[-200:], *lines[-20:]])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
