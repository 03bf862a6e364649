"""Runs the program of examples/orders as users start it, kills it where a test says, and reads its topics with
librdkafka.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition
from dying import Death, has_died
from examples.orders.judge import Expected, Record, Verdict, expected, judge
from examples.orders.order import CUSTOMERS_FILE, DEAD_LETTERS, JSON, ORDERS, PARTITIONS, REVENUE, read_customers
from spark_session import HERE, SETTINGS
from streams import LATE, TRIES

REPOSITORY = HERE.parents[1]
PYTHON_PATH = os.pathsep.join([str(HERE / "dying_everywhere"), str(HERE)])
"""A PYTHONPATH that makes `format("oncelog")` the dying format."""
SECONDS = 600
LATE_ROWS = re.compile(r"^revenue: .* (\d+) late$", re.MULTILINE)
READ_SECONDS = 60.0


def environment(directory: Path, settings: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of a shell in which no virtual environment is activated. Spark is as small as in other
    tests; `settings` are added to its settings. The settings are written to a file in `directory`.
    """
    kept = {name: os.environ[name] for name in ("HOME", "JAVA_HOME", "LANG", "TMPDIR") if name in os.environ}
    defaults = SETTINGS | dict(settings or {})
    (directory / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in defaults.items()))
    spark = {"SPARK_CONF_DIR": str(directory), "SPARK_LOCAL_IP": "127.0.0.1"}
    return kept | spark | {"PATH": "/usr/local/bin:/usr/bin:/bin"}


@dataclass(frozen=True)
class Program:
    """Runs the pipeline with `--available-now`. `directory` contains its checkpoints, and the files with which a test
    kills it.
    """

    address: str
    directory: Path
    batch: int
    form: str = JSON
    master: str = "local[2,3]"
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def died(self) -> Path:
        return self.directory / "died"

    def dies(self, topic: str, death: Death) -> str:
        """Run the program and check that the query which writes to the topic has died once; return the output."""
        self.died.unlink(missing_ok=True)
        code, output = self._run(self._environment(topic, death))
        assert has_died(self.died) == 1, output
        # the exit code may be 0, because the program may survive the death of a broker
        assert code != 0 or death.how == "broker", output
        return output

    def succeeds(self, topic: str = "", death: Death = Death()) -> str:  # noqa: B008  frozen
        """Run the program until it succeeds; start it again if a Python worker started too late; return the output."""
        for _ in range(TRIES):
            code, output = self._run(self._environment(topic, death))
            if code == 0 or LATE not in output:
                break
        assert code == 0, output
        return output

    def _environment(self, topic: str, death: Death) -> dict[str, str]:
        file = self.directory / "death.json"
        file.write_text(json.dumps(asdict(death) | {"topic": topic, "file": str(self.died)}))
        told = {
            "ONCELOG_TEST_DEATH": str(file),
            "PYTHONPATH": PYTHON_PATH,
            "ONCELOG_BOOTSTRAP_SERVER": self.address,
        }
        return environment(self.directory, self.settings) | told

    def command(self) -> list[str]:
        options = {
            "--master": self.master,
            "--format": self.form,
            "--batch": str(self.batch),
            "--directory": str(self.directory / "checkpoints"),
        }
        arguments = [part for option in options.items() for part in option]
        return [sys.executable, "-m", "examples.orders.pipeline", "--available-now", *arguments]

    def _run(self, environment: dict[str, str]) -> tuple[int, str]:
        """Run the program, and return the exit code and the output."""
        with tempfile.TemporaryFile("w+") as output:
            process = subprocess.Popen(
                self.command(),
                cwd=REPOSITORY,
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                process.wait(SECONDS)
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
            output.seek(0)
            return process.returncode, output.read()

    def when_it_prints(
        self,
        text: str,
        do: Callable[[int], None],
        topic: str = "",
        death: Death = Death(),  # noqa: B008  frozen
    ) -> str:
        """Run the program, and call `do` once with its process id when it prints a line that begins with `text`; return
        the output.
        """
        process = subprocess.Popen(
            self.command(),
            cwd=REPOSITORY,
            env=self._environment(topic, death),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        lines: list[str] = []
        has_done = False
        try:
            assert process.stdout is not None
            for line in process.stdout:
                lines.append(line)
                if line.startswith(text) and not has_done:
                    has_done = True
                    do(process.pid)
            process.wait(SECONDS)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        assert has_done, lines
        return "".join(lines)


def late_rows(output: str) -> int:
    """Return the total of late rows that the program has printed, as Spark has counted them."""
    return sum(map(int, LATE_ROWS.findall(output)))


# --- reading with librdkafka


def read(address: str, topic: str) -> list[Record]:
    """Return all committed records of a topic, as librdkafka reads them."""
    consumer = Consumer({
        "bootstrap.servers": address,
        "group.id": "judge",
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    })  # fmt: skip
    left = set(range(PARTITIONS))
    consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in left])
    found: list[Record] = []
    try:
        while left:
            message = consumer.poll(READ_SECONDS)
            assert message is not None, f"{topic}: nothing more comes of the partitions {left}"
            error = message.error()
            if error is None:
                place = (message.topic(), message.partition(), message.offset())
                found.append(Record(*place, message.key(), message.value(), tuple(message.headers() or ())))
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                left.discard(message.partition())
    finally:
        consumer.close()
    return found


def wanted(address: str, form: str = JSON) -> Expected:
    return expected(read(address, ORDERS), read_customers(CUSTOMERS_FILE), form)


def verdict(address: str, wanted: Expected) -> Verdict:
    return judge(wanted, read(address, REVENUE), read(address, DEAD_LETTERS))


def check(address: str, form: str = JSON) -> Expected:
    """Check that every expected record exists once, and return the expectation."""
    known = wanted(address, form)
    found = verdict(address, known)
    assert (found.missing, found.wrong) == ([], []), f"missing: {found.missing[:5]}, wrong: {found.wrong[:5]}"
    return known
