"""Builds librdkafka with its own test suite and runs the suite against our brokers.

The npm package @confluentinc/kafka-javascript carries the sources of librdkafka with all tests; nothing of them is
stored here. The tests start Kafka's command line tools from a directory KAFKA_PATH, which is made of Maven's jars.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from maven import BUILD, HERE, fetch, jars, need

PACKAGE, RELEASE = "@confluentinc/kafka-javascript", "1.10.1"
LIBRDKAFKA = "2.15.1"
"""The version of librdkafka in this release of the package."""
KAFKA = "4.3.1"
"""The release of the command line tools, and the broker version that the suite is told."""
BUILD_SECONDS = 2400
JOBS = os.cpu_count() or 1
TOOLS = {
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-acls.sh": "org.apache.kafka.tools.AclCommand",
    "kafka-run-class.sh": "",
}
"""Script of Kafka's distribution -> the class that it runs; empty: the class is the first argument."""
SMALL_JVM = "-Xmx96m -XX:+UseSerialGC -XX:TieredStopAtLevel=1"

COLOUR = re.compile(r"\x1b\[[0-9;]*m")
ROW = re.compile(r"^\| +(\S+) +\| +(\w+) +\| +[\d.]+s \|(.*)$", re.MULTILINE)
FILTERED = "Filtered due to negative test flags"
"""The suite's reason for a test that was excluded by the command line: a test with mocks, or one with known issues."""


class Report(NamedTuple):
    """Results of one run, by test: the tests that passed, and for the other tests the reason that the suite gives."""

    passed: frozenset[str]
    failed: dict[str, str]
    skipped: dict[str, str]


def built() -> Path:
    """Build the suite and return its directory, `tests` of the sources. Raises Unavailable if a tool or a package is
    missing.
    """
    need("npm", "gcc", "g++", "make")
    directory = BUILD / f"librdkafka-{LIBRDKAFKA}"
    sources = directory / "package" / "deps" / "librdkafka"
    complete = directory / ".complete"
    if complete.exists():
        return sources / "tests"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    fetch(["npm", "pack", f"{PACKAGE}@{RELEASE}", "--pack-destination", str(directory)], PACKAGE)
    (archive,) = directory.glob("*.tgz")
    with tarfile.open(archive) as packed:
        packed.extraction_filter = tarfile.data_filter if hasattr(tarfile, "data_filter") else None  # since 3.11.4
        packed.extractall(directory)
    steps = (
        (["./configure", "--disable-sasl", "--disable-curl"], sources),
        (["make", f"-j{JOBS}", "libs"], sources),
        (["make", f"-j{JOBS}", "build"], sources / "tests"),
    )
    for command, where in steps:
        done = subprocess.run(command, cwd=where, capture_output=True, text=True, timeout=BUILD_SECONDS, check=False)
        assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    complete.touch()
    return sources / "tests"


def kafka_path() -> Path:
    """Return a directory that looks like Kafka's distribution to the suite. Raises Unavailable."""
    libraries = jars(HERE / "broker" / "pom.xml", KAFKA, "kafka")
    directory = BUILD / f"kafka-distribution-{KAFKA}"
    scripts = directory / "bin"
    scripts.mkdir(parents=True, exist_ok=True)
    for name, tool in TOOLS.items():
        script = scripts / name
        script.write_text(f'#!/bin/sh\nexec java {SMALL_JVM} -cp "{libraries}/*:$CLASSPATH" {tool} "$@"\n')
        script.chmod(0o755)
    link = directory / "libs"
    link.unlink(missing_ok=True)
    link.symlink_to(libraries)
    return directory


def run(
    suite: Path, addresses: str, directory: Path, seconds: float, tests: Sequence[str] = (), **settings: str
) -> Report:
    """Run the tests that need a broker, in the suite's quick mode, with `group.protocol=consumer`; the output is in the
    file `librdkafka.log` of `directory`. `tests`: numbers such as "0113", by default all. `settings`: further settings
    of all clients of the suite, with `_` for each dot.
    """
    properties = {"metadata.broker.list": addresses, "test.topic.random": "true"}
    properties |= {name.replace("_", "."): value for name, value in settings.items()}
    configuration, log = directory / "test.conf", directory / "librdkafka.log"
    configuration.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": f"{suite.parent / 'src'}:{suite.parent / 'src-cpp'}",
        "RDKAFKA_TEST_CONF": str(configuration),
        "TEST_CONSUMER_GROUP_PROTOCOL": "consumer",
        "TEST_KAFKA_VERSION": KAFKA,
        "KAFKA_PATH": str(kafka_path()),
        "BROKERS": addresses,
        **({"TESTS": ",".join(tests)} if tests else {}),
    }
    with log.open("wb") as output:
        subprocess.run(
            ["./test-runner", "-Q", "-L", f"-p{JOBS}"],
            cwd=suite,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=seconds,
            check=False,
        )
    return report_of(log.read_text(errors="replace"))


def report_of(output: str) -> Report:
    """Read the table that the suite prints at its end."""
    rows = ROW.findall(COLOUR.sub("", output))
    assert rows, output[-3000:]
    passed = frozenset(name for name, state, _ in rows if state == "PASSED" and name != "<MAIN>")
    failed = {name: reason.strip() for name, state, reason in rows if state in ("FAILED", "RUNNING")}
    skipped = {name: reason.strip() for name, state, reason in rows if state == "SKIPPED" and FILTERED not in reason}
    return Report(passed, failed, skipped)
