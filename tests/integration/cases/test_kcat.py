"""Tests kcat, if it is installed: a command built on librdkafka 2.0, which is years older than the other tested
clients.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable

import pytest
from foreign_clients import TIMEOUT_SECONDS

KCAT = shutil.which("kcat") or shutil.which("kafkacat")

pytestmark = pytest.mark.skipif(KCAT is None, reason="kcat is not installed (Debian: apt-get install kcat)")

Kcat = Callable[..., str]


@pytest.fixture
def kcat(address: str) -> Kcat:
    """Return a function that runs kcat and returns its standard output."""

    def run(*arguments: str, standard_input: str = "") -> str:
        result = subprocess.run(
            [KCAT or "", "-b", address, *arguments],
            input=standard_input,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
        assert result.returncode == 0, result.stderr
        return result.stdout

    return run


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_lines_go_in_and_come_out(kcat: Kcat, topic: str, compression: str) -> None:
    lines = [f"key{index}:value {index} größer" for index in range(50)]
    kcat("-P", "-t", topic, "-p", "0", "-K:", "-z", compression, "-H", "h=1", standard_input="\n".join(lines) + "\n")
    consumed = kcat("-C", "-q", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-f", "%o %k:%s %h\n")
    assert consumed.splitlines() == [f"{index} {line} h=1" for index, line in enumerate(lines)]


def test_the_cluster_is_listed(kcat: Kcat, address: str, topic: str) -> None:
    kcat("-P", "-t", topic, standard_input="x\n")
    listed = kcat("-L", "-t", topic)
    assert f"at {address} (controller)" in listed
    assert f'topic "{topic}" with 1 partitions' in listed


def test_offsets_are_found_by_time(kcat: Kcat, topic: str) -> None:
    kcat("-P", "-t", topic, "-p", "0", standard_input="one\ntwo\n")
    assert kcat("-Q", "-t", f"{topic}:0:-2").split() == [topic, "[0]", "offset", "0"]
    assert kcat("-Q", "-t", f"{topic}:0:-1").split() == [topic, "[0]", "offset", "2"]
    assert kcat("-Q", "-t", f"{topic}:0:1000").split() == [topic, "[0]", "offset", "0"]


def test_an_idempotent_producer_writes_once(kcat: Kcat, topic: str) -> None:
    lines = "".join(f"{index}\n" for index in range(100))
    kcat("-P", "-t", topic, "-p", "0", "-X", "enable.idempotence=true", standard_input=lines)
    assert kcat("-C", "-q", "-t", topic, "-p", "0", "-o", "beginning", "-e") == lines
