"""Tests the `oncelog` command as a process against a live broker: pipes, signals, exit codes."""

from __future__ import annotations

import json
import os
import pty
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from broker_process import BrokerProcess
from warm_commands import COMMAND, run_oncelog

TIMEOUT_S = 60

Done = subprocess.CompletedProcess[bytes]
Oncelog = Callable[..., Done]


def environment(broker: BrokerProcess) -> dict[str, str]:
    return {**os.environ, "ONCELOG_BOOTSTRAP_SERVER": broker.address, "PYTHONWARNINGS": "error"}


@pytest.fixture
def oncelog(broker: BrokerProcess) -> Oncelog:
    """Return a function that runs `oncelog` until it ends. `code` is the expected exit code; no command may ever print
    a traceback.
    """

    def run(*arguments: str, stdin: bytes = b"", code: int = 0) -> Done:
        done = run_oncelog(*arguments, stdin=stdin, environment={"ONCELOG_BOOTSTRAP_SERVER": broker.address})
        assert b"Traceback" not in done.stderr
        assert done.returncode == code, done.stderr.decode()
        return done

    return run


def hear_interrupts() -> None:
    """Reset the handling of SIGINT: a shell makes background processes, and their children, ignore this signal."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.fixture
def follower(broker: BrokerProcess) -> Callable[..., subprocess.Popen[bytes]]:
    """Return a function that starts `oncelog` with its output in a pipe."""

    def start(*arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [COMMAND, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(broker),
            preexec_fn=hear_interrupts,
        )

    return start


def ended(process: subprocess.Popen[bytes]) -> tuple[int, bytes, bytes]:
    output, errors = process.communicate(timeout=TIMEOUT_S)
    return process.returncode, output, errors


def test_lines_go_in_and_come_out(oncelog: Oncelog, topic: str):
    done = oncelog("produce", topic, stdin=b"one\n\ntwo \xff\x00\nlast")
    assert done.stderr == b"4 of 4 records acknowledged\n"
    done = oncelog("consume", topic)
    assert done.stdout == b"one\n\ntwo \xff\x00\nlast\n"
    assert done.stderr == b""


def test_keys_nulls_headers_and_partitions_are_written_and_printed(oncelog: Oncelog, topic: str):
    oncelog("topics", "create", topic, "--partitions", "2")
    text = ["--key-separator", ":", "--null-value", "NULL", "--header", "a=1", "--partition", "1", "--quiet"]
    assert oncelog("produce", topic, *text, "--acks", "1", stdin=b"k:v\nk:NULL\n").stderr == b""
    done = oncelog("consume", topic, "--key-separator", r"\t", "--offsets", "--headers")
    assert done.stdout == f"{topic}:1:0\ta=1\tk\tv\n{topic}:1:1\ta=1\tk\tnull\n".encode()
    assert oncelog("consume", f"{topic}:0").stdout == b""
    assert oncelog("consume", f"{topic}:1", "--format", r"{key}={value};").stdout == b"k=v;k=null;"


@pytest.mark.parametrize(
    "compression", ["none", "zstd", *(pytest.param(each, marks=pytest.mark.soak) for each in ("gzip", "snappy", "lz4"))]
)
def test_json_copies_a_topic(oncelog: Oncelog, topic: str, compression: str):
    records = [
        {"key": "k", "value": "é\n", "headers": [["h", "1"], ["h", None]], "timestamp": 1000, "partition": 0},
        {"value": "/w==", "encoding": "base64", "timestamp": 1001},
        {"key": "k", "value": None, "timestamp": 1002},
    ]
    lines = b"".join(json.dumps(record).encode() + b"\n" for record in records)
    oncelog("produce", topic, "--json", "--compression", compression, stdin=lines)
    first = oncelog("consume", topic, "--json").stdout
    shown = [json.loads(line) for line in first.splitlines()]
    for offset, (record, seen) in enumerate(zip(records, shown, strict=True)):
        assert seen == {
            "key": None,
            "headers": [],
            "encoding": "utf-8",
            **record,
            "topic": topic,
            "partition": 0,
            "offset": offset,
        }
    oncelog("produce", f"{topic}-copy", "--json", stdin=first)
    assert oncelog("consume", f"{topic}-copy", "--json").stdout == first.replace(
        f'"{topic}"'.encode(), f'"{topic}-copy"'.encode()
    )


def test_consume_accepts_from_to_and_count(oncelog: Oncelog, topic: str):
    lines = b"".join(json.dumps({"value": str(n), "timestamp": 1000 * (n + 1)}).encode() + b"\n" for n in range(10))
    oncelog("produce", topic, "--json", "-D", "batch.size=0", stdin=lines)

    def read(*arguments: str) -> str:
        return oncelog("consume", topic, *arguments).stdout.decode().replace("\n", "")

    assert read("--from", "7") == "789"
    assert read("--from", "-2") == "89"
    assert read("--from", "latest") == ""
    assert read("--to", "3") == "012"
    assert read("--from", "2", "--count", "3") == "234"
    assert read("--from", "@4000", "--to", "@6000") == "34"
    assert read("--from", "1970-01-01T00:00:09") == "89"
    assert read("--from", "1h") == ""
    beyond = oncelog("consume", topic, "--from", "99")
    assert beyond.stdout == b""
    assert b"offset 99 is after the end, 10" in beyond.stderr


def test_the_rest_of_a_pipe_may_close(oncelog: Oncelog, follower, topic: str):
    oncelog("produce", topic, stdin=b"x" * 200 + b"\n" + b"".join(b"%0200d\n" % n for n in range(5000)))
    process = follower("consume", topic)
    assert process.stdout.read(201) == b"x" * 200 + b"\n"
    process.stdout.close()
    process.stdout = None
    code, _, errors = ended(process)
    assert (code, errors) == (141, b"")


def test_follow_shows_what_comes_until_it_is_interrupted(oncelog: Oncelog, follower, topic: str):
    oncelog("produce", topic, stdin=b"before\n")
    process = follower("consume", topic, "--follow")
    assert process.stdout.readline() == b"before\n"
    oncelog("produce", topic, stdin=b"after\n")
    assert process.stdout.readline() == b"after\n"
    process.send_signal(signal.SIGINT)
    assert ended(process) == (130, b"", b"")


def test_follow_ends_by_itself_after_count(oncelog: Oncelog, follower, topic: str):
    oncelog("topics", "create", topic)
    process = follower("consume", topic, "-f", "-n", "2")
    oncelog("produce", topic, stdin=b"1\n2\n3\n")
    assert ended(process) == (0, b"1\n2\n", b"")


def test_produce_sends_a_line_before_the_next_one_comes(broker: BrokerProcess, oncelog: Oncelog, topic: str):
    oncelog("topics", "create", topic)
    watching = subprocess.Popen(
        [COMMAND, "consume", topic, "-f", "-n", "1"], stdout=subprocess.PIPE, env=environment(broker)
    )
    sending = subprocess.Popen(
        [COMMAND, "produce", topic],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(broker),
        preexec_fn=hear_interrupts,
    )
    sending.stdin.write(b"now\nnot yet whole")
    sending.stdin.flush()
    assert watching.communicate(timeout=TIMEOUT_S)[0] == b"now\n"
    sending.send_signal(signal.SIGINT)
    sending.stdin.close()
    sending.stdin = None
    code, _, errors = ended(sending)
    assert code == 130
    assert b"Traceback" not in errors


def test_records_are_read_from_a_file_instead_of_standard_input(oncelog: Oncelog, topic: str, tmp_path: Path):
    (tmp_path / "lines").write_bytes(b"a\nb\n")
    oncelog("produce", topic, "--file", str(tmp_path / "lines"))
    assert oncelog("consume", topic).stdout == b"a\nb\n"


def test_failures_are_counted_and_named(oncelog: Oncelog, topic: str):
    oncelog("topics", "create", topic, "--config", "max.message.bytes=1000")
    done = oncelog("produce", topic, "-D", "linger.ms=0", stdin=b"a\n" + b"x" * 2000 + b"\n", code=1)
    assert b"oncelog: MESSAGE_TOO_LARGE: " in done.stderr
    assert b"of 2 records acknowledged" in done.stderr
    done = oncelog("produce", topic, "--key-separator", ":", stdin=b"a:1\nb\nc:2\n", code=1)
    assert done.stderr == b"oncelog: line 2: no key separator ':' in 'b'; 1 of 1 record acknowledged\n"
    done = oncelog("produce", topic, "--partition", "7", stdin=b"a\n", code=1)
    assert b"line 1: UNKNOWN_TOPIC_OR_PARTITION" in done.stderr
    done = oncelog("produce", topic, "--json", stdin=b"{", code=1)
    assert b"line 1: not JSON" in done.stderr


def test_produce_without_acks_claims_no_acknowledgement(oncelog: Oncelog, topic: str):
    oncelog("topics", "create", topic)
    done = oncelog("produce", topic, "--acks", "0", stdin=b"a\n")
    assert done.stderr == b"1 of 1 record sent, without acknowledgement (acks=0)\n"
    assert oncelog("consume", topic, "-f", "-n", "1").stdout == b"a\n"


def test_a_topic_is_created_altered_and_deleted(oncelog: Oncelog, topic: str):
    oncelog("topics", "create", topic, "--partitions", "2", "--config", "retention.ms=1000000")
    assert b"TOPIC_ALREADY_EXISTS" in oncelog("topics", "create", topic, code=1).stderr
    oncelog("topics", "create", topic, "--if-not-exists")
    assert topic in oncelog("topics", "list").stdout.decode().split()
    assert topic in json.loads(oncelog("topics", "list", "--output", "json").stdout)
    assert topic in oncelog("topics", "list", "--output", "table").stdout.decode()

    oncelog("produce", topic, "--partition", "1", stdin=b"a\nb\n")
    plain = oncelog("topics", "describe", topic).stdout.decode().splitlines()
    # the topic's segment.bytes has the value of the broker's log.segment.bytes
    settings = "retention.ms=1000000,segment.bytes=1048576"
    assert plain == [f"{topic}\t0\t1\t1\t1\t0\t0\t{settings}", f"{topic}\t1\t1\t1\t1\t0\t2\t{settings}"]
    changes = ["--config", "cleanup.policy=compact", "--delete-config", "retention.ms"]
    oncelog("topics", "alter", topic, "--partitions", "3", *changes)
    (described,) = json.loads(oncelog("topics", "describe", topic, "--output", "json").stdout)
    assert described["configs"] == {"cleanup.policy": "compact", "segment.bytes": "1048576"}
    assert [row["partition"] for row in described["partitions"]] == [0, 1, 2]
    assert (
        described["partitions"][1] | {"end_offset": 2, "beginning_offset": 0, "isr": [1]} == described["partitions"][1]
    )
    assert "cleanup.policy=compact" in oncelog("topics", "describe", topic, "--output", "table").stdout.decode()

    assert b"INVALID_CONFIG" in oncelog("topics", "alter", topic, "--config", "no.such=1", code=1).stderr
    assert b"INVALID_PARTITIONS" in oncelog("topics", "alter", topic, "--partitions", "1", code=1).stderr
    oncelog("topics", "delete", topic, "--yes")
    assert topic not in oncelog("topics", "list").stdout.decode().split()
    for arguments in (["topics", "describe", topic], ["topics", "delete", "-y", topic], ["consume", topic]):
        assert b"oncelog: UNKNOWN_TOPIC_OR_PARTITION: " in oncelog(*arguments, code=1).stderr


def test_deleting_asks_where_somebody_can_answer(broker: BrokerProcess, oncelog: Oncelog, topic: str):
    oncelog("topics", "create", topic)
    terminal, its_end = pty.openpty()
    try:
        for answer, code in ((b"n\n", 1), (b"y\n", 0)):
            process = subprocess.Popen(
                [COMMAND, "topics", "delete", topic], stdin=its_end, stderr=subprocess.PIPE, env=environment(broker)
            )
            os.write(terminal, answer)
            found, _, errors = ended(process)
            assert found == code, errors
            assert (topic in oncelog("topics", "list").stdout.decode().split()) == (code == 1)
    finally:
        os.close(terminal)
        os.close(its_end)


def test_dump_agrees_with_what_was_produced(broker: BrokerProcess, oncelog: Oncelog, topic: str):
    oncelog("produce", topic, "--compression", "lz4", stdin=b"".join(b"%0100d\n" % n for n in range(2000)))
    shown = oncelog("dump", "--json", "--deep-iteration", str(broker.data / f"{topic}-0"))
    rows = [json.loads(line) for line in shown.stdout.splitlines()]
    assert [row["offset"] for row in rows if row["kind"] == "record"] == list(range(2000))
    assert all(row["isvalid"] for row in rows if row["kind"] == "batch")
    assert shown.stderr == b""
    checkpoints = oncelog("dump", str(broker.data)).stdout
    assert b"node.id: 1" in checkpoints


SHELL_CASES = [
    ("consume {topic} > /dev/full", 1, "cannot write to standard output: No space left on device"),
    ("topics list > /dev/full", 1, "cannot write to standard output: No space left on device"),
    ("consume {topic} >&-", 1, "cannot write to standard output: Bad file descriptor"),
    ("topics list >&-", 1, "cannot write to standard output: Bad file descriptor"),
    ("produce {topic} <&-", 1, "cannot read standard input: Bad file descriptor"),
    ("produce {topic} --quiet < /dev/null >&-", 0, ""),
    ("consume nowhere 2> /dev/full", 1, ""),
    ("consume nowhere 2>&-", 1, ""),
    ("consume $'bad\\xff'", 1, "INVALID_REQUEST"),
    ("produce $'bad\\xff' <<< x", 1, "INVALID_TOPIC_EXCEPTION"),
    ("topics create $'bad\\xff'", 1, "INVALID_REQUEST"),
    ("consume {topic} -D client.id=$'bad\\xff'", 2, "cannot be said in UTF-8"),
]


@pytest.mark.parametrize(("command", "code", "message"), SHELL_CASES, ids=[case[0] for case in SHELL_CASES])
def test_streams_and_arguments_that_a_shell_can_give(
    broker: BrokerProcess, oncelog: Oncelog, topic: str, command: str, code: int, message: str
):
    if "consume {topic}" in command:
        oncelog("produce", topic, stdin=b"one\n" * 3)
    script = f"{COMMAND} {command.format(topic=topic)}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, timeout=TIMEOUT_S, env=environment(broker))
    assert b"Traceback" not in done.stderr
    assert b"Exception ignored" not in done.stderr
    assert message in done.stderr.decode()
    assert done.returncode == code, done.stderr.decode()


def test_an_unreachable_broker_is_reported(oncelog: Oncelog, topic: str):
    for arguments in (["produce", topic], ["consume", topic], ["topics", "list"]):
        done = oncelog(*arguments, "-b", "127.0.0.1:1", stdin=b"x\n", code=1)
        assert done.stderr == (
            b"oncelog: cannot reach 127.0.0.1:1: connection refused. Is the broker running? (oncelog serve)\n"
        )


def test_a_damaged_data_directory_is_an_error_message_not_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_bytes(b"\xff\xfe damaged")
    command = [COMMAND, "serve", "--data", str(tmp_path), "--set", "listeners=PLAINTEXT://127.0.0.1:0"]
    done = subprocess.run(command, capture_output=True, timeout=TIMEOUT_S)
    assert done.returncode == 1
    assert b"cannot start" in done.stderr
    assert b"meta.properties" in done.stderr
    assert b"Traceback" not in done.stderr


def test_ping_asks_every_broker_that_is_named(oncelog: Oncelog, broker: BrokerProcess) -> None:
    assert oncelog("ping").stdout == f"{broker.address} answers: 1 brokers, controller 1\n".encode()
    (answered,) = json.loads(oncelog("ping", "-o", "json").stdout)
    assert answered == {"address": broker.address, "brokers": 1, "controller": 1}
    done = oncelog("ping", "-b", f"{broker.address},127.0.0.1:1", code=1)
    assert done.stderr.startswith(b"oncelog: cannot reach 127.0.0.1:1: connection refused")


def test_ping_looks_for_a_broker_and_its_replicas(oncelog: Oncelog, topic: str) -> None:
    oncelog("topics", "create", topic)
    oncelog("ping", "--node-id", "1", "--in-sync")
    done = oncelog("ping", "--node-id", "2", code=1)
    assert done.stderr.endswith(b"answers, and broker 2 is not in the cluster\n")


def test_ping_does_not_wait_for_a_silent_broker(oncelog: Oncelog) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        done = oncelog("ping", "-b", f"127.0.0.1:{silent.getsockname()[1]}", "--timeout", "0.2", code=1)
    assert b"no connection within 0.2 s" in done.stderr
