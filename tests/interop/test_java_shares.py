"""Tests share groups with Java's client (KIP-932), from Kafka 4.2 on: members that acquire and acknowledge, and an
admin client.
"""

from __future__ import annotations

import subprocess
from contextlib import closing

import pytest
from conftest import HERE, JAVA_HEAP, or_skip
from librdkafka_client import Librdkafka
from maven import jars, need

RUN_SECONDS = 90
RELEASES = ("4.2.0", "4.3.1")


@pytest.mark.parametrize("release", RELEASES)
def test_two_members_share_a_topic_and_an_admin_resets_and_deletes_their_group(
    release: str, address: str, topic: str
) -> None:
    or_skip(lambda: need("java", "javac", "mvn"))
    libraries = or_skip(lambda: jars(HERE / "java" / "pom.xml", release, "java"))
    with closing(Librdkafka(address)) as client:
        client.create_topic(topic, 1)
    program = str(HERE / "java" / "Shares.java")
    run = subprocess.run(
        ["java", JAVA_HEAP, "-cp", f"{libraries}/*", program, address, topic],
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    accepted = " ".join("3x2" if number == 3 else str(number) for number in range(20) if number != 5)
    everything = " ".join(map(str, range(20)))
    assert run.stdout.splitlines() == [
        "Stable 2",
        "rejected 5",
        "released 3",
        "renewed 7",
        f"accepted {accepted}",
        "at the end true",
        "altered 0",
        f"again {everything}",
        "at the end true",
        "listed true",
        "listed false",
    ]
