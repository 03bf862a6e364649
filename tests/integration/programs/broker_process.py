"""Runs a live broker process for tests: starts the installed command, stops it by its process id, or kills it."""

from __future__ import annotations

import os
import re
import resource
import selectors
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, ClassVar, Final
from weakref import WeakSet

from warm_commands import COMMAND, WarmProcess, warm

from oncelog_broker.local_cluster.ports import LOOPBACK, OwnPort, own_ports

START_TIMEOUT_SECONDS = 60.0
STOP_TIMEOUT_SECONDS = 60.0
INTERNAL_PARTITIONS: Final = 5
"""The number of partitions of each internal topic, unless a test sets another number. A small number saves time:
creating and opening the default of fifty partitions is most of the cost of a short-lived broker.
"""
ANY_PORT: Final = re.compile(rf"(?<=//{re.escape(LOOPBACK)}:)0\b")
"""In `listeners`."""
DEFAULTS: Final = {
    "listeners": f"PLAINTEXT://{LOOPBACK}:0",
    "offsets.topic.num.partitions": str(INTERNAL_PARTITIONS),
    "transaction.state.log.num.partitions": str(INTERNAL_PARTITIONS),
    "share.coordinator.state.topic.num.partitions": str(INTERNAL_PARTITIONS),
}


class BrokerProcess:
    """`oncelog serve` on a free port. `start` returns when the broker has printed its address."""

    new_chroot: ClassVar[Callable[[], str] | None] = None
    """If this is set, each broker without an explicit setting keeps its metadata in ZooKeeper, at the path that this
    function returns.
    """

    started: ClassVar[WeakSet[BrokerProcess]] = WeakSet()
    """The brokers whose logs a failed test prints."""

    def __init__(
        self,
        data: Path,
        settings: dict[str, str] | None = None,
        *,
        log_level: str = "warning",
        open_files: int | None = None,
        command: str | None = None,
    ) -> None:
        """`open_files` is the process's limit of open files, by default that of this process. `command` is the path of
        another `oncelog`, in place of the installed one.
        """
        self.data = data
        self.log_level = log_level
        self.open_files = open_files
        self.command = command or COMMAND
        self.settings = {**DEFAULTS, **(settings or {})}
        if self.new_chroot is not None and "zookeeper.connect" not in self.settings:
            self.settings["zookeeper.connect"] = self._chroot_of(data)
            for topic in ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic"):
                self.settings.setdefault(f"{topic}.replication.factor", "1")
        if "zookeeper.connect" in self.settings:
            # Wait for ZooKeeper for as long as a busy machine may need; the default would be the session timeout, which
            # tests shorten.
            self.settings.setdefault("zookeeper.connection.timeout.ms", "60000")
        self.process: subprocess.Popen[str] | WarmProcess | None = None
        self.output: IO[str] | None = None
        """The pipe from the broker's standard output; None while the broker is not running."""
        self.port = 0
        """The port of the listener PLAINTEXT, or else of the first listener."""
        self._own_ports: list[OwnPort] = []
        """Ports that stay the same after a restart, because clients look for a killed broker at its old port."""
        self.start_line = ""
        self.log = data.parent / f"{data.name}.log"

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def start(self, fail_points: str = "") -> BrokerProcess:
        """`fail_points` is the value of ONCELOG_FAIL_POINTS for this run."""
        self.settings["listeners"] = ANY_PORT.sub(lambda _: str(self._new_port()), self.settings["listeners"])
        self.process = self._started(fail_points)
        self.start_line = self._start_line()
        # Do not use the address in the printed line: if advertised.listeners is set, that address belongs to a proxy.
        addresses = dict(listener.split("://") for listener in self.settings["listeners"].split(","))
        address = addresses.get("PLAINTEXT") or next(iter(addresses.values()))
        self.port = int(address.rpartition(":")[2])
        return self

    def _new_port(self) -> int:
        self._own_ports += own_ports(1)
        return self._own_ports[-1].number

    def _started(self, fail_points: str) -> subprocess.Popen[str] | WarmProcess:
        arguments = self._arguments()
        environment = {**os.environ, "PYTHONWARNINGS": "error", "ONCELOG_FAIL_POINTS": fail_points}
        self.started.add(self)
        with self.log.open("a") as log:
            if self.command == COMMAND and warm.can_start(environment):
                output, its_end = os.pipe()
                self.output = os.fdopen(output)
                with open(os.devnull) as nothing:
                    try:
                        return warm.start(
                            arguments, environment, (nothing.fileno(), its_end, log.fileno()), self.open_files
                        )
                    finally:
                        os.close(its_end)
            process = subprocess.Popen(
                [self.command, *arguments],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=environment,
                preexec_fn=None if self.open_files is None else self._limit_open_files,
            )
            self.output = process.stdout
            return process

    def _arguments(self) -> list[str]:
        arguments = ["serve", "--data", str(self.data), "--log-level", self.log_level]
        for key, value in self.settings.items():
            arguments += ["--set", f"{key}={value}"]
        return arguments

    def _chroot_of(self, data: Path) -> str:
        """Return the ZooKeeper path for a data directory; the directory stays in one cluster, even if a later process
        of the test uses it.
        """
        assert self.new_chroot is not None
        where = data.parent / f"{data.name}.zookeeper"
        if not where.exists():
            data.parent.mkdir(parents=True, exist_ok=True)
            where.write_text(type(self).new_chroot())  # type: ignore[misc]
        return where.read_text()

    def _limit_open_files(self) -> None:
        assert self.open_files is not None
        resource.setrlimit(resource.RLIMIT_NOFILE, (self.open_files, self.open_files))

    def _start_line(self) -> str:
        assert self.output is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.output, selectors.EVENT_READ)
            deadline = time.monotonic() + START_TIMEOUT_SECONDS
            while selector.select(max(0.0, deadline - time.monotonic())):
                line = self.output.readline()
                if not line:
                    self._reap()  # close the pipe of this process, because an open pipe would make later tests fail
                    raise AssertionError(f"the broker ended: {self.log.read_text()}")
                if "127.0.0.1:" in line:
                    return line
        self.kill()
        raise AssertionError(f"the broker did not start in time: {self.log.read_text()}")

    def kill(self) -> None:
        """kill -9."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self._reap()

    def wait_killed(self) -> None:
        """Wait until the broker has died at a fail point."""
        assert self._reap() == -signal.SIGKILL

    def wait_ended(self) -> int:
        """Wait until the broker has ended without being stopped, and return the exit code."""
        return self._reap()

    def stop(self) -> int:
        """Stop the broker in an orderly way, and return the exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self._reap()

    def wait_stopped(self) -> int:
        """Wait for a broker that has got the order to stop, and return the exit code."""
        return self._reap()

    def _reap(self) -> int:
        assert self.process is not None
        try:
            code = self.process.wait(STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"the broker did not stop: {self.log.read_text()}") from None
        finally:
            if self.output is not None:
                self.output.close()
        return code

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def __enter__(self) -> BrokerProcess:
        return self.start()

    def __exit__(self, *_: object) -> None:
        if self.is_running:
            self.stop()


BrokerFactory = Callable[..., BrokerProcess]
"""The fixture `broker_factory`: creates a broker that is not started yet, from settings and optionally a data
directory.
"""
