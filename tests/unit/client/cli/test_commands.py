"""The command tree, its options and its messages, without a broker."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from oncelog.cli.group import BUILT_IN, ENTRY_POINT_GROUP, SHORTCUTS, cli
from oncelog.cli.options import client_settings
from oncelog.cli.running import describe
from oncelog.errors import ConnectionFailed, ErrorCode, KafkaError, PartialFailure

PYPROJECT = Path(__file__).parents[4] / "pyproject.toml"
NOBODY = ["-b", "127.0.0.1:1"]


def oncelog(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(cli, arguments, input=stdin)


def test_shortcuts_say_what_the_entry_points_say():
    project = tomllib.loads(PYPROJECT.read_text())["project"]
    entry_points = project["entry-points"][ENTRY_POINT_GROUP]
    assert entry_points.items() >= SHORTCUTS.items()
    assert project["scripts"]["oncelog"] == "oncelog.cli.main:main"


def test_help_lists_every_command():
    result = oncelog("--help")
    assert result.exit_code == 0
    for name in [*BUILT_IN, "serve", "dump"]:
        assert f"\n  {name} " in result.output


@pytest.mark.parametrize("command", ["produce", "consume"])
def test_help_keeps_its_examples_on_lines_of_their_own(command):
    output = oncelog(command, "--help").output
    assert "\\b" not in output and "\b" not in output
    assert f"\n    oncelog {command} orders" in output


def test_finding_serve_loads_no_other_command_and_nothing_slow():
    script = (
        "import sys; from oncelog.cli.group import cli; import click\n"
        "cli.get_command(click.Context(cli), 'serve')\n"
        "slow = {'rich', 'importlib.metadata', 'oncelog.cli.consume', 'oncelog.cli.topics', 'oncelog.errors'}\n"
        "print(sorted(slow & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("typed", "meant"), [("tpics", "'topics'"), ("consum", "'consume'"), ("serv", "'serve'"), ("user", "'users'")]
)
def test_a_misspelt_command_is_told_the_nearest(typed, meant):
    result = oncelog(typed)
    assert result.exit_code == 2
    assert f"No such command '{typed}'. Did you mean {meant}" in result.output


@pytest.mark.parametrize(
    "arguments",
    [
        ["\x1b[2J"],
        ["topics", "\x1b[2J"],
        ["topics", "list", "--\x1b[2J"],
        ["consume", "t:\x1b[2J"],
        ["groups", "reset", "\x1b", "--to", "\x1b"],
    ],
)
def test_a_refusal_steers_no_terminal(arguments):
    """Command arguments may contain names that other users chose, such as topic names in a cluster."""
    result = oncelog(*arguments)
    assert result.exit_code == 2
    assert "\x1b" not in result.output


def test_an_unknown_command_is_wrong_usage():
    result = oncelog("topcis")
    assert result.exit_code == 2
    assert "No such command 'topcis'" in result.output


@pytest.mark.parametrize(
    "arguments",
    [
        ["topics", "list"],
        ["topics", "create", "t"],
        ["consume", "t"],
        ["topics", "delete", "-y", "t"],
        ["txns", "list"],
        ["txns", "find-hanging"],
        ["explain", "t"],
        ["ping"],
    ],
)
def test_an_unreachable_broker_is_one_line(arguments):
    result = oncelog(*arguments, *NOBODY)
    assert result.exit_code == 1
    assert result.output == (
        "oncelog: cannot reach 127.0.0.1:1: connection refused. Is the broker running? (oncelog serve)\n"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["consume", "t", "--from", "soon"], "'soon' is none of: earliest"),
        (["consume", "t:x"], "'t:x' is neither TOPIC nor TOPIC:PARTITION"),
        (["consume", "t", "--follow", "--to", "latest"], "--follow has no end"),
        (["consume", "t", "--json", "--offsets"], "exclude each other"),
        (["consume", "t", "--format", "{nothing}"], "unknown field {nothing}"),
        (["consume", "t", "--base64"], "--base64 is a choice of --json"),
        (["consume", "t", "-D", "fetch_min_byte=1"], "did you mean 'fetch_min_bytes'?"),
        (["consume", "t", "-b", "nowhere:port"], "must be host:port"),
        (["topics", "list", "-b", "::1"], "an IPv6 address must be in brackets, [::1]:9092"),
        (["produce", "t", "--header", "x"], "NAME=VALUE"),
        (["produce", "t", "--json", "--null-value", "x"], "are for lines of text"),
        (["produce", "t", "-D", "linger.ms"], "is not KEY=VALUE"),
        (["produce", "t", "-D", "linger.ms=x"], "linger_ms='x': must be an integer"),
        (["topics", "create", "t", "--partitions", "0"], "--partitions"),
        (["topics", "alter", "t"], "nothing to alter"),
        (["explain", "t:x"], "'t:x' is neither TOPIC nor TOPIC:PARTITION"),
        (["txns", "abort", "t", "--start-offset", "1"], "'t' names no partition: TOPIC:PARTITION is needed"),
        (["txns", "abort", "t:0"], "either --start-offset is needed, or --producer-id"),
        (["txns", "abort", "t:0", "--start-offset", "1", "--producer-id", "1"], "either --start-offset is needed"),
        (["txns", "abort", "t:0", "--producer-id", "1"], "--producer-epoch and --coordinator-epoch go together"),
        (["topics", "alter", "t", "--config", "a=1", "--delete-config", "a"], "either --config or --delete-config"),
    ],
)
def test_wrong_usage_says_what_is_wrong(arguments, message):
    result = oncelog(*arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())


def test_no_command_deletes_without_confirmation():
    result = oncelog("topics", "delete", "t", *NOBODY, stdin="y\n")
    assert result.exit_code == 1
    assert "use --yes" in result.output


def test_settings_have_kafkas_names_and_types():
    pairs = (("linger.ms", "5"), ("check_crcs", "false"), ("acks", "all"))
    assert client_settings(pairs) == {"linger_ms": 5, "check_crcs": False, "acks": "all"}


def test_errors_are_described():
    refused = ConnectionFailed("h:1: [Errno 111] Connect call failed ('h', 1)")
    assert describe(refused, "h:1").startswith("cannot reach h:1: connection refused. Is the broker")
    unknown = ConnectionFailed("no broker can be reached: h:1: [Errno -2] Name or service not known")
    assert describe(unknown, "h:1") == (
        "cannot reach h:1: Name or service not known. Is the name right? (--bootstrap-server)"
    )
    nobody = ConnectionFailed("no broker can be reached: h:9092: [Errno 111] Connect call failed ('h', 9092)")
    assert describe(nobody, "h").startswith("cannot reach h:9092: connection refused."), "the port that was tried"
    elsewhere = ConnectionFailed("10.0.0.9:9092: [Errno 113] Connect call failed ('10.0.0.9', 9092)")
    assert describe(elsewhere, "h:1") == (
        "cannot reach 10.0.0.9:9092, where the cluster says that one of its brokers is: no route to host. "
        "Is that broker running, and can it be reached from here? (its advertised.listeners)"
    )
    closed = ConnectionFailed("no broker can be reached: h:1: the broker closed the connection")
    assert describe(closed, "h:1").endswith("does security.protocol (--command-config) fit its listener?")
    gone = ConnectionFailed("node 9 is not among the brokers of the cluster")
    assert describe(gone, "h:1") == "node 9 is not among the brokers of the cluster"
    first, second = KafkaError(ErrorCode.INVALID_CONFIG, "a: no"), KafkaError(ErrorCode.INVALID_REQUEST, "b: no")
    assert describe(PartialFailure({"a": first, "b": second}, {}), "") == (
        "INVALID_CONFIG: a: no; INVALID_REQUEST: b: no"
    )
