"""Tests how an administrator's terminal gets names that clients have chosen and that contain escape sequences."""

from __future__ import annotations

import asyncio
import os
import pty
import re
import subprocess
import unicodedata
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager

import click
import pytest
from broker_process import BrokerProcess
from click.testing import CliRunner, Result
from warm_commands import COMMAND, run_oncelog_text

from oncelog import Admin, Consumer, ConsumerGroupMetadata, NewTopic, OffsetAndMetadata, Producer, TopicPartition
from oncelog.cli.group import BUILT_IN, cli

HOSTILE = "esc\x1b]0;pwned\x07\x1b[31mred\x1b[2J\x9b1m\u202etxt\u200b\n\tx"
SHOWN = r"\x1b]0;pwned\x07"
SGR = re.compile(r"\x1b\[[0-9;]*m")
"""Matches the colours and weights that oncelog's own tables use."""

READS = {
    ("topics", "list"): [],
    ("topics", "describe"): [],
    ("leaders", "show"): [],
    ("groups", "list"): [],
    ("groups", "describe"): [HOSTILE],
    ("txns", "list"): [],
    ("txns", "describe"): [HOSTILE],
    ("txns", "describe-producers"): ["TOPIC"],
    ("txns", "find-hanging"): [],
    ("configs", "describe"): ["--topic", "TOPIC"],
    ("top",): ["--once", "--interval", "0.1"],
    ("log-dirs",): [],
    ("explain",): ["TOPIC"],
    ("users", "list"): [],
    ("quotas", "list"): [],
    ("reassign", "list"): [],
    ("ping",): [],
    ("brokers", "list"): [],
}
"""Commands that only read, each with the arguments that make it print something."""
NAMED = {("groups", "list"), ("groups", "describe"), ("txns", "list"), ("txns", "describe"), ("top",), ("explain",),
         ("quotas", "list")}  # fmt: skip
"""The commands that print the name HOSTILE."""
WITHOUT_OUTPUT = {("ping",)}
CHANGES = {
    ("groups", "reset"): [HOSTILE, "--topic", "TOPIC", "--to", "0"],
    ("groups", "delete"): ["--yes", HOSTILE],
    ("txns", "fence"): [HOSTILE],
    ("txns", "commit"): ["--yes", HOSTILE],
    ("txns", "abort"): ["TOPIC:0", "--start-offset", "0"],
    ("topics", "delete"): ["--yes", HOSTILE],
    ("topics", "create"): [HOSTILE],
    ("topics", "alter"): [HOSTILE, "--partitions", "9"],
    ("consume",): [HOSTILE],
    ("configs", "set"): ["--topic", HOSTILE, "retention.ms=1"],
    ("configs", "delete"): ["--topic", HOSTILE, "retention.ms"],
}
"""Commands that either print a name, or are refused and print the name in the error."""
ELSEWHERE = {
    ("leaders", "elect"), ("acls", "list"), ("acls", "add"), ("acls", "remove"), ("users", "set"), ("users", "remove"),
    ("quotas", "set"), ("quotas", "remove"), ("reassign", "generate"), ("reassign", "execute"), ("reassign", "verify"),
    ("reassign", "cancel"), ("produce",), ("bench", "produce"), ("bench", "consume"), ("bench", "transactions"),
    ("completion",), ("profile", "set"), ("profile", "list"), ("profile", "use"), ("profile", "remove"),
    ("brokers", "decommission"), ("brokers", "rebalance"), ("doctor",), ("support", "bundle"), ("shares", "list"),
    ("shares", "describe"), ("shares", "reset"), ("shares", "delete"), ("shares", "delete-offsets"),
    ("groups", "delete-offsets"), ("topics", "delete-records"),
    ("topics", "move-dir"),
}  # fmt: skip
"""Commands that are not run in this test, because they print names chosen by clients only through `show_rows`, `tell`
and `Failure`, as all commands do.
"""


def commands(group: click.Group, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    context = click.Context(group)
    for name in group.list_commands(context) if above else BUILT_IN:
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, (*above, name))
        else:
            yield (*above, name)


def steers(text: str) -> list[str]:
    return [c for c in SGR.sub("", text) if unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp") and c not in "\r\n"]


async def oncelog(broker: BrokerProcess, *arguments: str) -> Result:
    """Run a command in this process, because there are many commands, and return its result with the output for
    a pipe.
    """
    result = await asyncio.to_thread(CliRunner().invoke, cli, [*arguments, "--bootstrap-server", broker.address])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    return result


def on_terminal(broker: BrokerProcess, *arguments: str) -> str:
    """Run a command on a pseudo-terminal, and return the output that the terminal gets."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "ONCELOG_BOOTSTRAP_SERVER": broker.address, "COLUMNS": "400", "TERM": "xterm"}
    process = subprocess.Popen([COMMAND, *arguments], stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    parts = []
    try:
        while part := os.read(ours, 65536):
            parts.append(part)
    except OSError:  # the process has closed its end of the terminal
        pass
    finally:
        os.close(ours)
    process.wait(60)
    return b"".join(parts).decode()


@asynccontextmanager
async def named(broker: BrokerProcess, topic: str) -> AsyncIterator[None]:
    """Create a client, a group with metadata, a transaction and a quota, all of which have the hostile name."""
    async with AsyncExitStack() as stack:
        admin = await stack.enter_async_context(Admin(broker.address))
        await admin.create_topics([NewTopic(topic, num_partitions=1)])
        here = TopicPartition(topic, 0)
        consumer = await stack.enter_async_context(
            Consumer(broker.address, group_id=HOSTILE, client_id=HOSTILE, enable_auto_commit=False)
        )
        consumer.subscribe([topic])
        while not consumer.assignment():
            await consumer.poll(100)
        await consumer.commit({here: OffsetAndMetadata(0, HOSTILE)})
        producer = await stack.enter_async_context(
            Producer(broker.address, transactional_id=HOSTILE, client_id=HOSTILE)
        )
        async with producer.transaction():
            await producer.send_and_wait(topic, b"value", b"\x1b[31mkey\xff", headers=[("\x1b[2J\u202e", b"\x9b1m")])
            await producer.send_offsets({here: 1}, ConsumerGroupMetadata(HOSTILE, -1, "", None))
            yield


def arguments_of(command: tuple[str, ...], given: list[str], topic: str) -> list[str]:
    return [*command, *(each.replace("TOPIC", topic) for each in given)]


def test_every_command_is_looked_at() -> None:
    assert set(commands(cli)) == READS.keys() | CHANGES.keys() | ELSEWHERE


async def test_names_of_clients_steer_no_terminal(broker: BrokerProcess, topic: str) -> None:
    async with named(broker, topic):
        await oncelog(broker, "quotas", "set", "--client-id", HOSTILE, "--producer-byte-rate", "1e9")
        for command, given in READS.items():
            arguments = arguments_of(command, given, topic)
            for output in ("table", "json", "yaml", "plain"):
                options = [] if command in WITHOUT_OUTPUT else ["--output", output]
                done = await oncelog(broker, *arguments, *options)
                assert done.exit_code == 0, (arguments, done.stderr)
                shown = done.stdout.replace("\t", "") if output == "plain" else done.stdout
                assert steers(shown + done.stderr) == [], (command, output)
                if command in NAMED and output == "plain":
                    assert SHOWN in shown, command


async def test_names_reach_a_terminal_escaped(broker: BrokerProcess, topic: str) -> None:
    async with named(broker, topic):
        for command in (("groups", "list"), ("groups", "describe"), ("explain",)):
            shown = await asyncio.to_thread(on_terminal, broker, *arguments_of(command, READS[command], topic))
            assert steers(shown) == [], command
            assert SHOWN in shown, command
    columns = ("--offsets", "--headers", "--key-separator", "=")
    shown = await asyncio.to_thread(on_terminal, broker, "consume", topic, *columns)
    assert steers(shown.replace("\t", "")) == []
    assert r"\x1b[2J\u202e=\x9b1m" in shown
    assert r"\x1b[31mkey\xff=value" in shown
    raw = run_oncelog_text("consume", topic, "--format", "{value}", "-b", broker.address)
    assert raw.stdout == "value"


@pytest.mark.parametrize("command", CHANGES, ids=" ".join)
async def test_messages_and_refusals_steer_no_terminal(
    broker: BrokerProcess, topic: str, command: tuple[str, ...]
) -> None:
    async with Admin(broker.address) as admin:
        await admin.create_topics([NewTopic(topic, num_partitions=1)])
    done = await oncelog(broker, *arguments_of(command, CHANGES[command], topic))
    assert steers(done.stderr) == []
    assert steers(done.stdout.replace("\t", "")) == []
