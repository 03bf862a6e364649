"""The tables of `oncelog top`, and the YAML format of --output in every command."""

from __future__ import annotations

import asyncio
import io
import json
from types import SimpleNamespace
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner
from rich.console import Console

from oncelog.cli import top_snapshot
from oncelog.cli.completion import VARIABLE
from oncelog.cli.configs import rows_of
from oncelog.cli.group import cli
from oncelog.cli.options import output_option
from oncelog.cli.output import Column, show_rows
from oncelog.cli.top import FOR_PEOPLE, FOR_PROGRAMS, as_json, drawn, duration, tables
from oncelog.cli.top_snapshot import GroupRow, Snapshot, TransactionRow, broker_rows, lag_of, rates
from oncelog.cluster import Partition, Topic
from oncelog_protocol.messages.describe_configs import ConfigSource


def seen(at: float, ends: dict[tuple[str, int], int], leader: int = 1) -> Snapshot:
    return Snapshot(at, "id", ends=ends, leaders=dict.fromkeys(ends, leader))


def test_throughput_covers_the_time_between_two_refreshes() -> None:
    before = seen(10.0, {("a", 0): 100, ("a", 1): 7, ("b", 0): 50})
    after = seen(12.0, {("a", 0): 300, ("a", 1): 7, ("b", 0): 10, ("new", 0): 99}, leader=2)
    measured = rates(before, after)
    assert measured.by_topic == {"a": 100.0, "b": 0.0, "new": 0.0}, "a log that was cut, or is new, is silent"
    assert measured.by_broker == {2: 100.0}
    assert measured.total == 100.0


def test_a_first_refresh_has_no_throughput() -> None:
    assert rates(None, seen(1.0, {("a", 0): 5})).total == 0.0


def test_a_dead_broker_is_shown_with_its_replicas() -> None:
    cluster = SimpleNamespace(brokers=[SimpleNamespace(node_id=1, host="one", port=9092)], controller_id=1)
    topic = Topic("t", partitions={0: Partition(0, 1, 0, (1, 2), (1,)), 1: Partition(1, -1, 0, (2,), (2,))})
    one, two = broker_rows(cluster, [topic])
    assert (one.address, one.is_controller, one.leads, one.replicas, one.out_of_sync) == ("one:9092", True, 1, 1, 0)
    assert (two.address, two.is_controller, two.leads, two.replicas, two.out_of_sync) == ("not there", False, 0, 2, 1)


def test_lag_counts_existing_records_only() -> None:
    assert lag_of({("a", 0): 3, ("a", 1): 9, ("gone", 0): 1}, {("a", 0): 10, ("a", 1): 8}) == 7
    assert lag_of({("gone", 0): 1}, {}) is None


class SlowGroups:
    """An admin client of a cluster in which some coordinators are loading."""

    async def list(self) -> list[Any]:
        return [SimpleNamespace(group_id=f"group-{number:02}") for number in range(30)]

    async def describe(self, group_ids: list[str]) -> dict[str, Any]:
        return {}

    async def offsets(self, group_id: str) -> dict[Any, Any]:
        if int(group_id[-2:]) % 2:
            await asyncio.Event().wait()
        return {}


async def test_unavailable_groups_delay_one_refresh_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """The groups that are available are shown."""
    monkeypatch.setattr(top_snapshot, "PART_SECONDS", 0.05)
    found = seen(1.0, {})
    admin: Any = SimpleNamespace(groups=SlowGroups())
    async with asyncio.timeout(30):
        await top_snapshot._see_groups(found, admin)
    assert len(found.groups) == 30
    assert found.missing == {"groups": "no answer within 0.05 s"}


def test_names_are_never_taken_as_markup_and_what_is_missing_is_said() -> None:
    now = seen(1.0, {})
    now.groups = [GroupRow("[bold]x[/bold]", "Stable", 1, None)]
    now.transactions = [TransactionRow("id-[red]", 5, 1, 3661.0, ("a-0",) * 40)]
    now.missing["topics"] = "TOPIC_AUTHORIZATION_FAILED: no"
    console = Console(file=io.StringIO(), width=160)
    console.print(drawn(now, rates(None, now)))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "[bold]x[/bold]" in text
    assert "id-[red]" in text
    assert "1 h 1 min" in text
    assert "(40)" in text
    assert "topics: TOPIC_AUTHORIZATION_FAILED" in text


def test_shown_values_are_available_to_programs() -> None:
    before, now = seen(0.0, {("a", 0): 0}), seen(2.0, {("a", 0): 30})
    now.groups = [GroupRow("g", "Stable", 2, 9)]
    told = as_json(now, rates(before, now))
    assert told["topics"] == [{"topic": "a", "records_per_second": 15.0}]
    assert told["groups"] == [{"group_id": "g", "state": "Stable", "members": 2, "lag": 9}]
    assert json.loads(json.dumps(told)) == told
    shown = tables(now, rates(before, now), FOR_PEOPLE)
    assert [title for title, _, rows in shown if rows] == ["Topics", "Groups"]


def test_programs_read_plain_numbers_and_all_of_a_list() -> None:
    before, now = seen(0.0, {("a", 0): 0}), seen(2.0, {("a", 0): 30_000})
    partitions = tuple(f"a-{number}" for number in range(40))
    now.transactions = [TransactionRow("t", 5, 1, 3661.25, partitions), TransactionRow("u", 6, 1, None)]
    measured = rates(before, now)
    rows = {title: rows for title, _, rows in tables(now, measured, FOR_PROGRAMS)}
    assert rows["Topics"] == [("a", "15000.0")]
    assert rows["Open transactions"] == [("t", "3661.2", 5, 1, ",".join(partitions)), ("u", "-", 6, 1, "")]
    assert {title: rows for title, _, rows in tables(now, measured, FOR_PEOPLE)}["Topics"] == [("a", "15,000")]


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, "-"), (0.04, "0.0 s"), (59.4, "59 s"), (200, "3 min 20 s"), (7500, "2 h 5 min")]
)
def test_durations_are_as_people_read_them(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


# --- --output


@click.command()
@output_option
def shows(output: str | None) -> None:
    show_rows([Column("key", "Key"), Column("values", "Values")], [("é: [x]", (1, 2)), (None, ())], output)


def test_yaml_output_equals_json_output() -> None:
    as_json_, as_yaml = (CliRunner().invoke(shows, ["--output", form]).output for form in ("json", "yaml"))
    assert yaml.safe_load(as_yaml) == json.loads(as_json_) == [
        {"key": "é: [x]", "values": [1, 2]},
        {"key": None, "values": []},
    ]  # fmt: skip
    assert as_yaml.startswith("- key:")


def commands_of(group: click.Command, *path: str) -> list[tuple[tuple[str, ...], click.Command]]:
    """Return all subcommands with their paths."""
    if not isinstance(group, click.Group):
        return [(path, group)]
    context = click.Context(group)
    found = []
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        found += commands_of(command, *path, name)
    return found


def test_each_command_with_output_has_the_same_languages() -> None:
    commands = commands_of(cli)
    choices = {
        " ".join(path): parameter.type.choices
        for path, command in commands
        for parameter in command.params
        if parameter.name == "output" and isinstance(parameter.type, click.Choice)
    }
    assert len(choices) > 20
    assert choices.pop("consume") == ("plain", "json", "yaml"), "records printed as they arrive are not a table"
    assert set(map(tuple, choices.values())) == {("table", "json", "yaml", "plain")}


# --- tables of settings, and shell completion


def entry(name: str, value: str | None, source: ConfigSource, *, is_sensitive: bool = False) -> Any:
    return SimpleNamespace(
        name=name, value=value, source=source, is_read_only=False, is_sensitive=is_sensitive, documentation=None,
        is_default=source is ConfigSource.DEFAULT_CONFIG,
    )  # fmt: skip


def test_settings_are_sorted_by_key_and_secrets_are_hidden() -> None:
    entries = [
        entry("z", "1", ConfigSource.TOPIC_CONFIG),
        entry("a", "secret", ConfigSource.STATIC_BROKER_CONFIG, is_sensitive=True),
        entry("m", "2", ConfigSource.DEFAULT_CONFIG),
    ]
    rows = rows_of("topic t", entries, shows_all=True)  # type: ignore[arg-type]
    assert [row[1:4] for row in rows] == [("a", "(hidden)", "file"), ("m", "2", "default"), ("z", "1", "topic")]
    assert [row[1] for row in rows_of("topic t", entries, shows_all=False)] == ["a", "z"]  # type: ignore[arg-type]


@pytest.mark.parametrize("arguments", [("describe",), ("set", "a=1"), ("delete", "a")])
def test_the_owner_of_settings_must_be_named(arguments: tuple[str, ...]) -> None:
    result = CliRunner().invoke(cli, ["configs", *arguments])
    assert result.exit_code == 2
    assert "--topic, --group, --broker, --loggers or --all-brokers" in result.output


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_a_shell_asks_oncelog(shell: str) -> None:
    result = CliRunner().invoke(cli, ["completion", shell])
    assert result.exit_code == 0
    assert f"{VARIABLE}={shell}_complete" in result.output


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("oncelog to", {"topics", "top"}),
        ("oncelog topics cr", {"create"}),
        ("oncelog bench produce --rec", {"--records"}),
    ],
)
def test_commands_and_options_are_completed(line: str, expected: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    words = line.split(" ")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
    result = CliRunner().invoke(cli, prog_name="oncelog", env={VARIABLE: "bash_complete"})
    assert {found.split(",")[1] for found in result.output.split()} == expected
