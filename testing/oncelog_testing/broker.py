"""One broker in a separate process. The broker ends when this process ends, even if this process is killed: the
broker's standard input is a pipe from this process, and the broker stops when the pipe closes.
"""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from oncelog_broker.runtime.private_files import make_private_directory, opened_privately
from oncelog_testing.control import CRASH_SECONDS, BrokerGone, Fault, ask
from oncelog_testing.first_lines import first_lines

if TYPE_CHECKING:
    from oncelog_broker.local_cluster.ports import OwnPort

__tracebackhide__ = True  # hides this module in the traceback of a failed test

LOOPBACK: Final = "127.0.0.1"
START_SECONDS: Final = 60.0
STOP_SECONDS: Final = 60.0
PORT_ATTEMPTS: Final = 5
LOG_CHARACTERS: Final = 10_000
QUICK_SETTINGS: Final[Mapping[str, str]] = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
}
"""Settings for tests: no rebalance delay, and internal topics with few partitions, which are created quickly."""


class BrokerStartError(Exception):
    """Raised if the broker does not start; the message contains the broker's output."""


class Broker:
    """A broker process. `start`, or entering a `with` statement, returns when the broker serves. The broker keeps its
    port and its data until the end of the run.
    """

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, str] | None = None,
        *,
        name: str = "broker",
        workers: int | None = None,
    ) -> None:
        """`settings`, by Kafka's keys, override the settings for tests. With `workers`, that many broker processes run
        behind the port (`oncelog serve --workers`); faults can then not be set, and `kill` kills their supervisor.
        Raises ValueError for a number of workers below 1.
        """
        if workers is not None and workers < 1:
            raise ValueError(f"workers={workers}: must be at least 1")
        self.directory = directory
        self.name = name
        self.workers = workers
        self.settings = {**QUICK_SETTINGS, **(settings or {})}
        self.port = 0
        self._own_ports: list[OwnPort] = []
        self.control_url = ""
        """The URL of the HTTP control that `fail`, `pause` and `crash` use."""
        self.ended_by_test: set[int | None] = set()
        """Ids of the broker processes that the test itself has killed or stopped; the end of these processes does not
        count as a crash.
        """
        self._process: subprocess.Popen[str] | None = None
        self._is_touched = False
        self._has_been_ready = False
        self._log_seen = 0

    # --- addresses and state

    @property
    def bootstrap_servers(self) -> str:
        """The broker's address as `host:port`, for any client."""
        return f"{LOOPBACK}:{self.port}"

    def __str__(self) -> str:
        return self.bootstrap_servers

    @property
    def log(self) -> Path:
        """The log file, which contains warnings and errors by default."""
        return self.directory / f"{self.name}.log"

    @property
    def is_running(self) -> bool:
        """Whether the process runs; also True while it is paused."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        """The process id; None while the broker does not run."""
        return self._process.pid if self._process is not None and self.is_running else None

    def create_topic(self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        """Create a topic. Raises TopicAlreadyExists, InvalidTopic and other KafkaErrors."""
        from oncelog_testing.topics import create_topic

        create_topic(self.bootstrap_servers, name, partitions, configs)

    # --- faults

    def fail(
        self,
        point: str,
        *,
        crash: bool = False,
        drop: bool = False,
        delay: int | None = None,
        refuse: str | None = None,
        after: bool = False,
        times: int | None = 1,
        topic: str | None = None,
        transactional_id: str | None = None,
        group_id: str | None = None,
    ) -> Fault:
        """Set a fault at the fail point `point`, a named step in the broker, for the next `times` executions of the
        step (None: until the fault is removed).

        `crash` kills the broker's process (kill -9); `drop` loses the step, request or response; `delay` waits for this
        number of milliseconds; `refuse` responds with the Kafka error of this name. `after`: apply the fault after the
        step instead of before it. The other parameters limit the fault to one topic, transaction or group. The page
        docs/testing.md lists the fail points. Raises ValueError for an action that a point does not support, or
        BrokerGone.
        """
        asked = {
            "crash": crash, "drop": drop, "delay": delay, "refuse": refuse, "after": after,
            "topic": topic, "transactional_id": transactional_id, "group_id": group_id,
        }  # fmt: skip
        order = {"point": point, **{name: value for name, value in asked.items() if value not in (None, False)}}
        self._is_touched = True
        return Fault(self, self.ask("POST", "/faults", {**order, "times": times})["id"], order)

    def points(self) -> dict[str, dict[str, Any]]:
        """Return the fail points (named steps) at which a fault can be set, each with the supported faults."""
        return {point["name"]: point for point in self.ask("GET", "/points")["points"]}

    def clear_faults(self) -> None:
        """Remove all faults that are set in this broker. Raises BrokerGone."""
        self.ask("DELETE", "/faults")

    def kill(self) -> None:
        """Kill the process (kill -9); returns when it has ended. `start` restarts the broker with the same port and
        data.
        """
        self._is_touched = True
        self.ended_by_test.add(self.pid)
        self._send(signal.SIGKILL)
        self._reap()

    def stop(self) -> None:
        """Stop the broker in an orderly way. Raises TimeoutExpired."""
        with suppress(BrokerGone):  # stop the process also if the broker's control server does not respond
            self._see_whether_it_crashes()
        self._is_touched = True
        self.ended_by_test.add(self.pid)
        self._end()

    def restart(self) -> None:
        """Restart the broker on the same port; a running broker stops in an orderly way. All faults are removed."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """Pause the process: its connections stay open, and no request gets a response. Raises BrokerGone."""
        self._is_touched = True
        self.ask("POST", "/pause")

    def resume(self) -> None:
        """Continue a paused process; does nothing if it is not paused. Raises BrokerGone."""
        self.ask("POST", "/resume")

    def wait_ended(self, seconds: float = STOP_SECONDS) -> bool:
        """Wait until the broker's process ends for a reason other than this object's methods, for example because of a
        fault. Returns False after a timeout.
        """
        if self._process is None:
            return True
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        self._reap()
        return True

    def mend(self) -> None:
        """Repair the broker: afterwards it runs and serves, and no fault is set."""
        self._see_whether_it_crashes("POST /resume", "DELETE /faults")
        if self._process is None or not self.is_running:
            self.start()
        self._is_touched = False
        self._log_seen = self.log.stat().st_size

    def _see_whether_it_crashes(self, *questions: str) -> None:
        """If the test has used the broker, check that it runs. If a fault is crashing the broker at this moment, wait
        until its process has ended, because clients notice a crash earlier than the parent process. Raises BrokerGone
        if the broker runs and does not respond.
        """
        if not self._is_touched or not self.is_running or self.workers is not None:
            return
        try:
            for question in questions or ("GET /faults",):
                method, path = question.split()
                self.ask(method, path)
        except BrokerGone:
            if not self.wait_ended(CRASH_SECONDS):
                raise

    @property
    def is_well(self) -> bool:
        """Whether the broker runs, and no fault was injected since the last call of `mend`."""
        return self.is_running and not self._is_touched

    def logged(self) -> list[tuple[str, str]]:
        """Return the log lines since the last call of `mend`, for the report of a failed test."""
        with self.log.open("rb") as log:
            log.seek(self._log_seen)
            text = log.read().decode(errors="replace")
        return [(f"log of oncelog's {self.name}", text[-LOG_CHARACTERS:])] if text.strip() else []

    def ask(self, method: str, path: str, body: Any = None, more_seconds: float = 0.0) -> Any:
        """Send a request to the broker's control. Raises ValueError or BrokerGone."""
        if self.workers is not None:
            raise ValueError(f"{self.name} has {self.workers} workers: faults and pauses need a broker without workers")
        if not self.is_running:
            raise BrokerGone(f"{self.name} does not run")
        try:
            return ask(self.control_url, method, path, body, more_seconds)
        except (OSError, http.client.HTTPException) as error:
            if not self.is_running:
                raise BrokerGone(f"{self.name} does not run") from None
            raise BrokerGone(f"the control of {self.name} at {self.control_url} does not answer: {error!r}") from error

    # --- the broker's process

    def start(self) -> Self:
        """Start the broker; does nothing if it runs. Raises BrokerStartError."""
        self._see_whether_it_crashes()
        if not self.is_running:
            self.launch()
            self.wait_ready()
        return self

    def launch(self) -> None:
        """Start the process without waiting until it serves, so that several brokers can start at the same time; then
        call `wait_ready`.
        """
        self._reap_if_ended()
        if not self.port:
            # worker k listens on the k-th port after the port for clients
            self._own_ports = _own_ports(1 + (self.workers or 0))
            self.port = self._own_ports[0].number
        settings = {
            "log.dirs": str(self.directory / self.name),
            **self.settings,
            "listeners": f"PLAINTEXT://{self.bootstrap_servers}",
        }
        # -P: files in the test project's directory are not imported in place of oncelog's modules.
        command = [sys.executable, "-P", "-m", "oncelog", "serve", "--stop-at-eof"]
        command += ["--fail-control", "0"] if self.workers is None else ["--workers", str(self.workers)]
        for key, value in settings.items():
            command += ["--set", f"{key}={value}"]
        from oncelog_broker.config.load import without_settings

        make_private_directory(self.directory)
        with opened_privately(self.log, "ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                # a new process session, so that Ctrl-C in the terminal does not reach the broker
                start_new_session=True,
                # Remove settings from the environment, so that the broker of a test uses only the settings of the test.
                env=without_settings(os.environ),
            )

    def wait_ready(self) -> None:
        """Wait until the started process serves. Raises BrokerStartError."""
        for attempt in range(1, PORT_ATTEMPTS + 1):
            assert self._process is not None
            wanted = 2 if self.workers is None else 1
            lines = first_lines(self._process, wanted, START_SECONDS)
            if len(lines) == wanted:
                self._has_been_ready = True
                self.control_url = lines[1].split()[-1] if self.workers is None else ""
                return
            self.kill()
            if (
                self._has_been_ready
                or attempt == PORT_ATTEMPTS
                or all(_is_free(each.number) for each in self._own_ports)
            ):
                break
            self.port = 0  # another process has taken a port before the broker bound it
            self.launch()
        raise BrokerStartError(f"{self.name} does not start: {self._last_words()}")

    def _last_words(self) -> str:
        return self.log.read_text(errors="replace")[-LOG_CHARACTERS:].strip() or f"{self.log} is empty"

    def _send(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    def _end(self) -> None:
        if self._process is None:
            return
        if self.is_running and self.workers is None:
            try:
                self.resume()
            except BrokerGone:
                pass
        self._send(signal.SIGTERM)
        try:
            self._process.wait(STOP_SECONDS)
        finally:
            self._process.kill()
            self._reap()

    def _reap_if_ended(self) -> None:
        if self._process is not None and not self.is_running:
            self._reap()

    def _reap(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self._end()


def _own_ports(count: int) -> list[OwnPort]:
    from oncelog_broker.local_cluster.ports import own_ports

    return own_ports(count)


def _is_free(port: int) -> bool:
    from oncelog_broker.local_cluster.ports import is_free

    return is_free(port)
