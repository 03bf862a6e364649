"""Commands to copy: a shell parses them as intended, whatever the names are."""

from __future__ import annotations

import shlex
import subprocess

import pytest

from oncelog_console.changes.commands import oncelog, piped

BOOTSTRAP = "127.0.0.1:9092"


def test_options_are_left_out_repeated_or_without_a_value() -> None:
    told = oncelog(BOOTSTRAP, "topics create", "orders", partitions=3, replication_factor=None, config=["a=1", "b=2"])
    assert shlex.split(told) == [
        "oncelog", "topics", "create", "--bootstrap-server", BOOTSTRAP,
        "--partitions", "3", "--config", "a=1", "--config", "b=2", "orders",
    ]  # fmt: skip
    assert shlex.split(oncelog(BOOTSTRAP, "acls add", deny=True, prefixed=False))[-1] == "--deny"


def test_a_name_that_looks_like_an_option_is_none() -> None:
    assert shlex.split(oncelog(BOOTSTRAP, "topics delete", "-y"))[-2:] == ["--", "-y"]
    assert shlex.split(oncelog(BOOTSTRAP, "quotas set", user="--ip"))[-1] == "--user=--ip"


@pytest.mark.parametrize("name", ["o'hara", "$(reboot)", "a\nb", "`x`", 'say "hi"', "\u202eevil", "a;b|c&d", "ü €"])
def test_a_shell_reads_each_name_as_it_is(name: str) -> None:
    command = oncelog(BOOTSTRAP, "groups delete", name).replace("oncelog", "printf '<%s>'", 1)
    done = subprocess.run(["bash", "-c", command], capture_output=True, check=True, env={"LC_ALL": "C.UTF-8"})
    assert done.stdout.decode().endswith(f"<{name}>")
    echoed = subprocess.run(
        ["bash", "-c", piped(name, "cat")],
        capture_output=True,
        check=True,
        env={"LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin"},
    )
    assert echoed.stdout.decode() == f"{name}\n"
