"""`oncelog profile`, and the precedence among option, profile and environment variable."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from oncelog.cli.group import cli

HERE = "127.0.0.1:1"
ELSEWHERE = "127.0.0.1:2"


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "below" / "profiles.yaml"
    monkeypatch.setenv("ONCELOG_PROFILES", str(path))
    for name in ("ONCELOG_PROFILE", "ONCELOG_BOOTSTRAP_SERVER", "ONCELOG_COMMAND_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    return path


def oncelog(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments)


def profiles() -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(oncelog("profile", "list", "-o", "json").stdout)
    return found


def test_profiles_are_kept_listed_chosen_and_removed(file: Path) -> None:
    assert profiles() == []
    assert "the current one" in oncelog("profile", "set", "a", "-b", HERE).stderr
    assert oncelog("profile", "set", "b", "-b", ELSEWHERE, "--registry", "http://r:8081").exit_code == 0
    assert [(each["profile"], each["current"]) for each in profiles()] == [("a", True), ("b", False)]
    assert oncelog("profile", "use", "b").exit_code == 0
    assert profiles()[1] == {
        "profile": "b",
        "current": True,
        "bootstrap_servers": ELSEWHERE,
        "command_config": None,
        "registry": "http://r:8081",
    }
    assert oncelog("profile", "remove", "b").exit_code == 0
    assert [(each["profile"], each["current"]) for each in profiles()] == [("a", False)]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in file.parent.iterdir()] == [file.name]


@pytest.mark.parametrize(
    ("arguments", "environment", "asked"),
    [
        ((), {}, HERE),
        (("--profile", "b"), {}, ELSEWHERE),
        ((), {"ONCELOG_PROFILE": "b"}, ELSEWHERE),
        ((), {"ONCELOG_BOOTSTRAP_SERVER": "127.0.0.1:3"}, "127.0.0.1:3"),
        (("--profile", "b"), {"ONCELOG_BOOTSTRAP_SERVER": "127.0.0.1:3"}, ELSEWHERE),
        (("--profile", "b", "-b", "127.0.0.1:4"), {}, "127.0.0.1:4"),
    ],
)
def test_the_nearest_setting_counts(
    arguments: tuple[str, ...], environment: dict[str, str], asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    oncelog("profile", "set", "a", "-b", HERE)
    oncelog("profile", "set", "b", "-b", ELSEWHERE)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    result = oncelog("ping", *arguments)
    assert result.exit_code == 1
    assert f"cannot reach {asked}" in result.output


def test_a_profile_names_the_file_with_the_login(tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text("security.protocol=SASL_PLAINTEXT\n")
    assert oncelog("profile", "set", "a", "-b", HERE, "--command-config", str(config)).exit_code == 0
    assert "sasl_mechanism" in oncelog("topics", "list").output
    config.unlink()
    result = oncelog("topics", "list")
    assert result.exit_code == 2
    assert str(config) in result.output.replace("\n", "")


def test_an_unknown_profile_is_told_the_nearest() -> None:
    oncelog("profile", "set", "staging", "-b", HERE)
    for arguments in (("topics", "list", "--profile", "stagin"), ("profile", "use", "stagin")):
        result = oncelog(*arguments)
        assert result.exit_code == 2
        assert "there is no profile 'stagin': did you mean 'staging'?" in result.output


@pytest.mark.parametrize("text", ["profiles: [", "profiles: 7", "profiles: {a: 7}", "profiles: {a: {port: x}}", "- a"])
def test_a_file_that_cannot_be_used_is_named(file: Path, text: str) -> None:
    file.parent.mkdir()
    file.write_text(text)
    result = oncelog("topics", "list")
    assert result.exit_code == 2
    assert str(file) in result.output.replace("\n", "")


def test_a_profile_with_an_address_that_is_none_is_refused() -> None:
    result = oncelog("profile", "set", "a", "-b", "host:port")
    assert result.exit_code == 2
    assert "must be host:port" in result.output


def test_the_list_of_profiles_has_no_password_of_a_registry(file: Path) -> None:
    oncelog("profile", "set", "staging", "-b", "kafka:9092", "--registry", "http://robot:hunter2@registry:8081")
    assert [each["registry"] for each in profiles()] == ["http://registry:8081"]
    assert "hunter2" in file.read_text(), "commands still use it"
