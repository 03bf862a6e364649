"""Runs one ZooKeeper server, or an ensemble of several servers, on loopback."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from oncelog_broker.local_cluster.java import Java
from oncelog_broker.local_cluster.ports import LOOPBACK, OwnPort, own_ports
from oncelog_broker.local_cluster.process import LocalProcess
from oncelog_broker.local_cluster.server_config import NO_SETTINGS, ServerPorts, Timing, server_config
from oncelog_broker.local_cluster.zookeeper_jars import Jars
from oncelog_broker.runtime.private_files import make_private_directory, write_privately

SERVE_SECONDS: Final = 60.0
"""Seconds within which a started server must serve; two seconds are usual."""
PORT_ATTEMPTS: Final = 3
"""Maximum number of attempts with new ports, because another process may bind a free port before the server does."""
POLL_SECONDS: Final = 0.03
COMMAND_SECONDS: Final = 1.0
"""Timeout in seconds of a four-letter command, because a paused server never responds."""
LOG_CHARACTERS: Final = 3000

FLAGS: Final = (
    "-Xmx64m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Djava.net.preferIPv4Stack=true",
    "-Dzookeeper.jmx.log4j.disable=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
)
"""Flags of the JVM. With these flags a server uses 70 MB of memory and is ready after 1.3 s."""
MAIN_CLASS: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"


class ZooKeeperStartError(Exception):
    """Raised if a server has ended during its start, or does not serve in time; the message has the end of the server's
    log.
    """


class ZooKeeperServer:
    """One ZooKeeper server with its directory, which has `zoo.cfg`, `data/` and `server.log`."""

    def __init__(self, directory: Path, port: int, process: LocalProcess | None = None) -> None:
        self.directory = directory
        self.port = port
        """The port at which clients connect to the server."""
        self.process = process
        self.log = directory / "server.log"

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    @property
    def data(self) -> Path:
        return (self.directory / "data").absolute()

    @property
    def is_running(self) -> bool:
        """Whether the server's process exists; a paused process counts as running."""
        return self.process is not None and self.process.is_running

    def launch(self, java: Java, jars: Jars, note: Callable[[], None], *, dies_with_us: bool) -> None:
        """Start the server, without waiting until it serves. The function `note` is called after `process` is set,
        before the command runs.
        """
        assert not self.is_running, f"{self.directory} has a server already"
        command = [str(java.path), *FLAGS, "-cp", jars.class_path, MAIN_CLASS, str(self.directory / "zoo.cfg")]

        def known(process: LocalProcess) -> None:
            self.process = process
            note()

        LocalProcess.start(command, self.log, dies_with_us=dies_with_us, note=known)

    @property
    def is_serving(self) -> bool:
        """Whether the server serves clients, alone or in a quorum. The result is False if another program responds on
        the port.
        """
        return f"dataDir={self.data}/" in self.ask("conf") and "Mode: " in self.ask("srvr")

    @property
    def is_leader(self) -> bool:
        """Whether the server is the leader of an ensemble."""
        return "Mode: leader" in self.ask("srvr")

    def ask(self, command: str) -> str:
        """Return the response to a four-letter command; "" if there is no response."""
        try:
            with socket.create_connection((LOOPBACK, self.port), COMMAND_SECONDS) as connection:
                connection.sendall(command.encode())
                answer = b""
                while part := connection.recv(1 << 16):
                    answer += part
        except OSError:
            return ""
        return answer.decode(errors="replace")

    def wait_until_serving(self, deadline: float) -> None:
        """Wait until the server serves. `deadline`: time of time.monotonic(). Raises ZooKeeperStartError."""
        while not self.is_serving:
            if not self.is_running:
                raise ZooKeeperStartError(f"the ZooKeeper server in {self.directory} ended: {self._last_words()}")
            if time.monotonic() > deadline:
                raise ZooKeeperStartError(
                    f"the ZooKeeper server in {self.directory} does not serve: {self._last_words()}"
                )
            time.sleep(POLL_SECONDS)

    def _last_words(self) -> str:
        return self.log.read_text(errors="replace")[-LOG_CHARACTERS:].strip() or "it logged nothing"

    def kill(self) -> None:
        """Kill the server (kill -9); returns after the process has ended."""
        if self.process is not None:
            self.process.kill()

    def pause(self) -> None:
        if self.process is not None:
            self.process.pause()

    def resume(self) -> None:
        if self.process is not None:
            self.process.resume()

    def stop(self) -> None:
        if self.process is not None:
            self.process.stop()


class Ensemble:
    """An ensemble of ZooKeeper servers; `start` returns when all servers serve. As a context manager the ensemble stops
    the servers at the end of the block.

    Servers are numbered from 1, and the names of their directories have these numbers. The options of the first start,
    including the ports, stay the same while the directory exists.
    """

    def __init__(
        self,
        directory: Path,
        java: Java,
        jars: Jars,
        *,
        size: int = 1,
        timing: Timing | None = None,
        is_synced: bool = True,
        dies_with_us: bool = False,
        servers: Sequence[ZooKeeperServer] = (),
        on_launch: Callable[[Sequence[ZooKeeperServer]], None] = lambda _: None,
        settings: Mapping[str, object] = NO_SETTINGS,
    ) -> None:
        """`servers`: the servers of an earlier run of this ensemble, in order. `dies_with_us`: whether a server is
        killed when the thread that started it ends (Linux only).

        `on_launch` is a function that is called with the list of all servers before each start of a server. `settings`:
        further lines of zoo.cfg.
        """
        self.directory = directory
        self.java, self.jars = java, jars
        self.size = size
        self.timing = timing or Timing()
        self.is_synced = is_synced
        self.dies_with_us = dies_with_us
        self.servers = list(servers)
        self._on_launch = on_launch
        self._settings = settings
        self._own_ports: list[OwnPort] = []
        """The reserved client ports of the servers, if `start` has chosen these ports; otherwise empty."""

    @property
    def connect_string(self) -> str:
        """The addresses of all servers in the form of `zookeeper.connect`; the caller may append a chroot."""
        return ",".join(server.address for server in self.servers)

    def server(self, number: int) -> ZooKeeperServer:
        return self.servers[number - 1]

    @property
    def leader(self) -> int | None:
        """The number of the server that is the leader now; None if there is no leader."""
        return next((number for number, server in enumerate(self.servers, 1) if server.is_leader), None)

    def start(self) -> Ensemble:
        """Start the servers that are not running, and wait until all servers serve. Raises ZooKeeperStartError."""
        if self.servers:
            self._launch()
            return self
        for attempt in range(PORT_ATTEMPTS):
            self._choose_ports()
            try:
                self._launch()
            except ZooKeeperStartError:
                self.kill()
                if attempt + 1 == PORT_ATTEMPTS:
                    raise
            else:
                break
        return self

    def restart(self, number: int) -> None:
        """Start a killed server, and wait until the server serves. Raises ZooKeeperStartError."""
        server = self.server(number)
        self._launch_one(server)
        server.wait_until_serving(time.monotonic() + SERVE_SECONDS)

    def stop(self) -> None:
        """Stop all running servers, including paused servers."""
        for server in self.servers:
            if server.process is not None:
                server.process.terminate()
                server.process.resume()
        for server in self.servers:
            server.stop()

    def kill(self) -> None:
        for server in self.servers:
            server.kill()

    def _launch(self) -> None:
        for server in self.servers:
            server.resume()
            if not server.is_running:
                self._launch_one(server)
        deadline = time.monotonic() + SERVE_SECONDS
        for server in self.servers:
            server.wait_until_serving(deadline)

    def _launch_one(self, server: ZooKeeperServer) -> None:
        note = partial(self._on_launch, self.servers)
        server.launch(self.java, self.jars, note, dies_with_us=self.dies_with_us)

    def _choose_ports(self) -> None:
        per_server = 1 if self.size == 1 else len(ServerPorts._fields)
        self._own_ports = own_ports(per_server * self.size)
        numbers = [each.number for each in self._own_ports]
        ports = [ServerPorts(*numbers[each : each + per_server]) for each in range(0, len(numbers), per_server)]
        self.servers = []
        for number, each in enumerate(ports, 1):
            server = ZooKeeperServer(self.directory / f"zookeeper-{number}", each.client)
            make_private_directory(server.directory)
            make_private_directory(server.data)
            write_privately(server.data / "myid", f"{number}\n")
            config = server_config(server.data, ports, self.timing, is_synced=self.is_synced, others=self._settings)
            write_privately(server.directory / "zoo.cfg", config)
            self.servers.append(server)

    def __enter__(self) -> Ensemble:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
