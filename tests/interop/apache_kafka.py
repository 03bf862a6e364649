"""Runs Apache Kafka itself: one node that is broker and controller (KRaft), on loopback, with a small heap.

Each fixture runs only one Kafka process at a time, because a JVM needs much memory, and stops the process by its
process id.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from maven import HERE, jars, need

from oncelog_broker.local_cluster.ports import OwnPort, own_ports

NODE_ID = 7
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
START_SECONDS = 60.0
STOP_SECONDS = 60.0
SMALL_HEAP = ("-Xms64m", "-Xmx128m", "-XX:+UseSerialGC", "-XX:ReservedCodeCacheSize=64m")
QUIET = (
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
)
SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": str(NODE_ID),
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.share.assignment.interval.ms": "0",
    "group.streams.assignment.interval.ms": "0",
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.share.min.record.lock.duration.ms": "1000",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "num.network.threads": "1",
    "num.io.threads": "2",
    "num.recovery.threads.per.data.dir": "1",
    "log.cleaner.dedupe.buffer.size": "2097152",
    "log.cleaner.backoff.ms": "200",
}


class ApacheKafka:
    """`start` formats the directory if it is empty, and returns when Kafka responds. Raises maven.Unavailable."""

    def __init__(
        self,
        release: str,
        data: Path,
        settings: Mapping[str, str] | None = None,
        java_options: Sequence[str] = SMALL_HEAP,
        *,
        has_logins: bool = False,
        controller: ApacheKafka | None = None,
    ) -> None:
        """With `has_logins` Kafka also has a SASL_PLAINTEXT listener, at `sasl_port`. If `settings` has `log.dirs`,
        `data` must be one of these directories. `controller` is the started node whose controller this broker uses; by
        default it has its own.
        """
        need("java")
        self._controller = controller
        self.controller_address = ""
        self._has_logins = has_logins
        self.sasl_port = 0
        self._java_options = java_options
        self.release = release
        self.data = data
        self.settings = {**SETTINGS, **(settings or {})}
        self.log = data.parent / f"{data.name}.kafka.log"
        self.port = 0
        self._own_ports: list[OwnPort] = []
        self._class_path = f"{jars(HERE / 'broker' / 'pom.xml', release, 'kafka')}/*"
        self._properties = data.parent / f"{data.name}.properties"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def tool(self, name: str, arguments: Sequence[str]) -> str:
        """Run one of Kafka's command-line tools, and return its output; `name` is the tool's class. Raises
        AssertionError if the tool fails.
        """
        options = ("-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *QUIET)
        result = subprocess.run(
            ["java", *options, "-cp", self._class_path, name, *arguments], capture_output=True, text=True, check=False
        )
        assert result.returncode == 0, f"{name}: {result.stdout}{result.stderr}"
        return result.stdout + result.stderr

    def start(self) -> ApacheKafka:
        if not self.port:
            self._own_ports = own_ports(3)
            self.port, controller_port, sasl_port = [each.number for each in self._own_ports]
            if self._controller is None:
                self.controller_address = f"{self.settings['node.id']}@127.0.0.1:{controller_port}"
            else:
                self.controller_address = self._controller.controller_address
            listeners = f"PLAINTEXT://127.0.0.1:{self.port}"
            if self._has_logins:
                self.sasl_port = sasl_port
                listeners += f",SASL_PLAINTEXT://127.0.0.1:{sasl_port}"
                self.settings["listener.security.protocol.map"] = ",".join(
                    ("CONTROLLER:PLAINTEXT", "PLAINTEXT:PLAINTEXT", "SASL_PLAINTEXT:SASL_PLAINTEXT")
                )
            self.settings.setdefault("log.dirs", str(self.data))
            self.settings |= {
                "listeners": listeners,
                "advertised.listeners": listeners,
                "controller.quorum.voters": self.controller_address,
            }
            if self._controller is None:
                self.settings["listeners"] += f",CONTROLLER://127.0.0.1:{controller_port}"
            else:
                self.settings["process.roles"] = "broker"
        self._properties.write_text("".join(f"{key}={value}\n" for key, value in self.settings.items()))
        if not (self.data / "meta.properties").exists():
            self.tool("kafka.tools.StorageTool", ["format", "-t", CLUSTER_ID, "-c", str(self._properties)])
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                ["java", *self._java_options, *QUIET, "-cp", self._class_path, "kafka.Kafka", str(self._properties)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._wait_until_it_listens()
        return self

    def _wait_until_it_listens(self) -> None:
        """Wait until Kafka has opened its listener, which happens only when it can serve requests."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self.is_running:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            except OSError:
                time.sleep(0.1)
            else:
                return
        self.kill()
        raise AssertionError(f"Apache Kafka {self.release} did not start: {self.log.read_text()[-3000:]}")

    def stop(self) -> None:
        """Stop Kafka in an orderly way."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"Apache Kafka did not stop: {self.log.read_text()[-3000:]}") from None

    def kill(self) -> None:
        """kill -9."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def __enter__(self) -> ApacheKafka:
        return self.start()

    def __exit__(self, *_: object) -> None:
        if self.is_running:
            self.stop()
