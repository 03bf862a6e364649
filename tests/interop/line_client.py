"""A client in another language: a child process that reads commands as tab-separated lines and writes its results as
lines.

Bytes are sent as base64; "-" means null. The result of each command ends with the line "done"; before it, a line with
"error", code and text means that the client has refused the command. The child programs are `java/InteropClient.java`
and `node/interop_client.js`.
"""

from __future__ import annotations

import base64
import os
import selectors
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from foreign_clients import BROKERS, ForeignClient, Headers, Placed, Received, Record, Refused
from kafka.partitioner.default import murmur2

ANSWER_SECONDS = 60.0


class LineClient(ForeignClient):
    """`command` starts the child, whose standard error is written to `log`."""

    def __init__(self, name: str, command: Sequence[str], log: Path) -> None:
        self.name = name
        self._log = log
        with log.open("ab") as errors:
            self._child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)
        self._received = bytearray()

    def close(self) -> None:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.close()
        try:
            self._child.wait(ANSWER_SECONDS)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self._child.stdout.close()

    def _ask(self, *words: object, lines: Sequence[str] = ()) -> list[list[str]]:
        """Send a command, and return the lines of the result as words."""
        assert self._child.stdin is not None
        text = "\n".join(["\t".join(map(str, words)), *lines]) + "\n"
        self._child.stdin.write(text.encode())
        self._child.stdin.flush()
        answer = []
        deadline = time.monotonic() + ANSWER_SECONDS
        refused: Refused | None = None
        while (line := self._line(deadline)) != ["done"]:
            if line[0] == "error":
                refused = Refused(int(line[1]), line[2])
            else:
                answer.append(line)
        if refused is not None:
            raise refused
        return answer

    def _line(self, deadline: float) -> list[str]:
        assert self._child.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._child.stdout, selectors.EVENT_READ)
            while b"\n" not in self._received:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise AssertionError(f"{self.name} does not answer: {self._log.read_text()[-2000:]}")
                data = os.read(self._child.stdout.fileno(), 1 << 16)
                if not data:
                    raise AssertionError(f"{self.name} ended: {self._log.read_text()[-2000:]}")
                self._received += data
        line, _, rest = self._received.partition(b"\n")
        self._received = rest
        return line.decode().split("\t")

    def produce(
        self,
        topic: str,
        records: Sequence[Record],
        *,
        partition: int | None = 0,
        compression: str | None = None,
        acks: int = -1,
        idempotent: bool = False,
    ) -> list[Placed]:
        lines = [
            "\t".join(
                (
                    _encoded(record.key),
                    _encoded(record.value),
                    "-" if record.timestamp_ms is None else str(record.timestamp_ms),
                    ",".join(f"{_encoded(name.encode())}:{_encoded(value)}" for name, value in record.headers),
                )
            )
            for record in records
        ]
        where = "-" if partition is None else partition
        flag = "true" if idempotent else "false"
        answer = self._ask("produce", topic, where, compression or "none", acks, flag, len(lines), lines=lines)
        return [Placed(int(words[1]), int(words[2])) for words in answer]

    def consume(
        self, topic: str, count: int, *, partition: int = 0, offset: int = 0, isolation: str = "read_uncommitted"
    ) -> list[Received]:
        if not count:
            return []
        answer = self._ask("consume", topic, partition, offset, count, isolation)
        assert len(answer) == count, f"{len(answer)} of {count} records came"
        return [
            Received(
                int(words[1]),
                int(words[2]),
                int(words[3]),
                int(words[4]),
                _decoded(words[5]),
                _decoded(words[6]),
                _headers(words[7]),
            )
            for words in answer
        ]

    def offsets(self, topic: str, partition: int = 0) -> tuple[int, int]:
        ((_, begin, end),) = self._ask("offsets", topic, partition)
        return int(begin), int(end)

    def offset_for_time(self, topic: str, timestamp_ms: int, partition: int = 0) -> int | None:
        ((_, offset),) = self._ask("time", topic, partition, timestamp_ms)
        return None if offset == "-" else int(offset)

    def partition_for(self, key: bytes, partitions: int) -> int:
        return int((murmur2(key) & 0x7FFFFFFF) % partitions)  # choose the partition as Java's partitioner does

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        replication_factor: int = BROKERS,
        configs: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> None:
        pairs = [word for pair in (configs or {}).items() for word in pair]
        self._ask("create", name, partitions, replication_factor, "true" if validate_only else "false", *pairs)

    def delete_topic(self, name: str) -> None:
        self._ask("delete", name)

    def topics(self) -> set[str]:
        return {words[1] for words in self._ask("topics")}

    def partition_count(self, topic: str) -> int:
        ((_, count),) = self._ask("describe", topic)
        return int(count)

    def create_partitions(self, topic: str, total: int) -> None:
        self._ask("partitions", topic, total)

    def configs(self, topic: str) -> dict[str, str | None]:
        return {words[1]: None if words[2] == "-" else words[2] for words in self._ask("configs", topic)}

    def alter_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        self._ask("alter", topic, *(word for pair in configs.items() for word in pair))

    def delete_records(self, topic: str, before_offset: int, partition: int = 0) -> int:
        ((_, low),) = self._ask("delete-records", topic, partition, before_offset)
        return int(low)

    def brokers(self) -> list[tuple[int, str, int]]:
        return [(int(words[1]), words[2], int(words[3])) for words in self._ask("brokers")]


def _encoded(data: bytes | None) -> str:
    return "-" if data is None else base64.b64encode(data).decode()


def _decoded(text: str) -> bytes | None:
    return None if text == "-" else base64.b64decode(text)


def _headers(text: str) -> Headers:
    pairs = [part.split(":") for part in text.split(",")] if text else []
    return tuple(((_decoded(name) or b"").decode(), _decoded(value)) for name, value in pairs)
