from __future__ import annotations

import os
import tarfile
from pathlib import Path

import pytest

from oncelog_broker.local_cluster import zookeeper_jars
from oncelog_broker.local_cluster.zookeeper_jars import (
    CLASSPATH_VARIABLE,
    JarsNotFound,
    cache_directory,
    find_jars,
    provide_jars,
    unpack_needed,
)

NEEDED = [
    "zookeeper-3.9.3.jar",
    "zookeeper-jute-3.9.3.jar",
    "metrics-core-4.2.30.jar",
    "snappy-java-1.1.10.7.jar",
    "slf4j-api-2.0.16.jar",
    "netty-buffer-4.1.118.Final.jar",
    "netty-codec-4.1.118.Final.jar",
    "netty-common-4.1.118.Final.jar",
    "netty-handler-4.1.118.Final.jar",
    "netty-resolver-4.1.118.Final.jar",
    "netty-transport-4.1.118.Final.jar",
    "netty-transport-classes-epoll-4.1.118.Final.jar",
    "netty-transport-native-unix-common-4.1.118.Final.jar",
]
OTHERS = ["metrics-core-extra.txt", "metrics-json-4.2.30.jar", "slf4j-api-notes.jar", "spark-core_2.13-4.0.1.jar"]


def files(directory: Path, names: list[str]) -> Path:
    directory.mkdir(parents=True)
    for name in names:
        (directory / name).write_text(name)
    return directory


@pytest.fixture(autouse=True)
def bare_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Simulate a machine on which no Python or Debian package provides the jars."""
    monkeypatch.setattr(zookeeper_jars, "find_spec", lambda _: None)
    monkeypatch.setattr(zookeeper_jars, "DEBIAN_JAR", tmp_path / "no such file")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {"XDG_CACHE_HOME": str(tmp_path / "cache"), "PATH": str(tmp_path / "bin")}


def test_a_bare_machine_has_no_jars(environment: dict[str, str]) -> None:
    assert find_jars(environment) is None


def test_a_jar_named_by_the_environment_takes_precedence(tmp_path: Path, environment: dict[str, str]) -> None:
    jars = files(tmp_path / "jars", NEEDED)
    named = f"{jars / NEEDED[0]}{os.pathsep}{jars}/*"
    found = find_jars({**environment, CLASSPATH_VARIABLE: named})
    assert found == (named, CLASSPATH_VARIABLE)


def test_a_jar_named_by_the_environment_must_exist(tmp_path: Path, environment: dict[str, str]) -> None:
    with pytest.raises(JarsNotFound, match=f"{CLASSPATH_VARIABLE} names .*gone.jar, which does not exist"):
        find_jars({**environment, CLASSPATH_VARIABLE: str(tmp_path / "gone.jar")})


def test_five_jars_of_pyspark_are_taken(
    tmp_path: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Package:
        origin = str(tmp_path / "pyspark" / "__init__.py")

    jars = files(tmp_path / "pyspark" / "jars", NEEDED + OTHERS)
    monkeypatch.setattr(zookeeper_jars, "find_spec", lambda _: Package)
    found = find_jars(environment)
    assert found is not None
    assert sorted(found.class_path.split(os.pathsep)) == sorted(str(jars / name) for name in NEEDED)
    (jars / NEEDED[2]).unlink()
    assert find_jars(environment) is None, "a server without metrics-core ends at once"


def test_debians_jar_names_the_others_itself(
    tmp_path: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    jar = files(tmp_path / "java", ["zookeeper.jar"]) / "zookeeper.jar"
    monkeypatch.setattr(zookeeper_jars, "DEBIAN_JAR", jar)
    found = find_jars(environment)
    assert found is not None
    assert found.class_path == str(jar)


def program(path: Path, script: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


MAVEN = """
echo called >> "$0.calls"
for argument; do case $argument in -DoutputDirectory=*) : > "${argument#*=}/zookeeper-3.9.3.jar";; esac; done
"""


def test_maven_fetches_once(tmp_path: Path, environment: dict[str, str]) -> None:
    program(tmp_path / "bin" / "mvn", MAVEN)
    told: list[str] = []
    first = provide_jars(told.append, environment)
    assert first.class_path == str(cache_directory(environment) / "zookeeper-3.9.3.jar")
    assert provide_jars(told.append, environment) == first == find_jars(environment)
    assert [sentence.split(" into ")[0] for sentence in told] == ["fetching the jars of ZooKeeper (7 MB) by Maven"]
    assert (tmp_path / "bin" / "mvn.calls").read_text() == "called\n"


def test_a_killed_fetch_leaves_nothing_usable(tmp_path: Path, environment: dict[str, str]) -> None:
    files(cache_directory(environment), ["half-a.jar"])
    assert find_jars(environment) is None
    program(tmp_path / "bin" / "mvn", MAVEN)
    assert "half-a.jar" not in provide_jars(lambda _: None, environment).class_path


def test_a_failed_fetch_says_what_was_tried_and_what_to_do(
    tmp_path: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "bin" / "mvn", "echo 'no route to the registry' >&2; exit 1")
    program(tmp_path / "python", "echo 'no such package' >&2; exit 1")
    monkeypatch.setattr(zookeeper_jars.sys, "executable", str(tmp_path / "python"))
    with pytest.raises(JarsNotFound) as raised:
        provide_jars(lambda _: None, environment)
    message = str(raised.value)
    assert "mvn failed: no route to the registry; python failed: no such package" in message
    assert f"Set {CLASSPATH_VARIABLE}" in message
    assert find_jars(environment) is None


def archive(tmp_path: Path, names: list[str]) -> Path:
    jars = files(tmp_path / "pyspark-4.0.1" / "deps" / "jars", names)
    path = tmp_path / "pyspark-4.0.1.tar.gz"
    with tarfile.open(path, "w:gz") as members:
        members.add(jars.parents[1], "pyspark-4.0.1")
    return path


def test_only_the_server_jars_of_an_archive_are_kept(tmp_path: Path) -> None:
    target = files(tmp_path / "target", [])
    unpack_needed(archive(tmp_path, NEEDED + OTHERS), target)
    assert sorted(path.name for path in target.iterdir()) == sorted(NEEDED)
    assert (target / NEEDED[0]).read_text() == NEEDED[0]


def test_an_archive_without_server_jars_is_refused(tmp_path: Path) -> None:
    with pytest.raises(JarsNotFound, match="does not contain the jars of a ZooKeeper server"):
        unpack_needed(archive(tmp_path, NEEDED[1:]), files(tmp_path / "target", []))


def test_each_pom_version_has_its_own_directory(environment: dict[str, str], tmp_path: Path) -> None:
    assert cache_directory(environment) == tmp_path / "cache" / "oncelog" / "zookeeper-3.9.3-2"
