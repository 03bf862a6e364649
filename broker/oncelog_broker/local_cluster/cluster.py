"""Runs a local cluster of brokers and ZooKeeper servers in one directory: starts and stops the cluster, kills and
pauses single processes.

Each command is a separate process: it locks and loads the state of the cluster, saves the state after each step, and
unlocks the state at its end. If a command is killed, the next command can continue, because the saved state lists every
running process.
"""

from __future__ import annotations

import asyncio
import fcntl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.config.declared import InvalidConfig
from oncelog_broker.local_cluster.broker_process import (
    address_of,
    elect_preferred_leaders,
    log_of,
    members_seen_by,
    out_of_sync_for,
    settings_of,
    start_broker,
)
from oncelog_broker.local_cluster.ensemble import Ensemble, ZooKeeperServer
from oncelog_broker.local_cluster.java import find_java
from oncelog_broker.local_cluster.ports import is_free
from oncelog_broker.local_cluster.process import LocalProcess
from oncelog_broker.local_cluster.state import ClusterState, Member, load_state
from oncelog_broker.local_cluster.zookeeper_jars import provide_jars
from oncelog_broker.log.directories.meta_properties import META_PROPERTIES_FILE
from oncelog_broker.runtime.private_files import make_private_directory, opened_privately

SERVE_SECONDS: Final = 60.0
"""Seconds within which all started brokers must be registered."""
STOP_SECONDS: Final = 30.0
SYNC_SECONDS: Final = 120.0
"""Limit in seconds on the wait until all replicas are in sync; a restart waits before it stops a broker, and again
after the broker has started.
"""
SHOWN_PARTITIONS: Final = 10
"""Maximum number of partitions that are named in one message to the user."""
POLL_SECONDS: Final = 0.1
LOG_CHARACTERS: Final = 2000
ZOOKEEPER: Final = "zookeeper-"
BROKER: Final = "broker-"


class ClusterError(Exception):
    """The command cannot be executed; the message says why, and what to do."""


class Wanted(NamedTuple):
    """The options of the command `up`. None means that the user has not given the option: an existing cluster keeps its
    value, and a new cluster gets the default.
    """

    brokers: int | None = None
    port: int | None = None
    zookeepers: int | None = None
    settings: Mapping[str, str] | None = None


class MemberStatus(NamedTuple):
    name: str
    state: str
    """The state of the process: "running", "paused" or "stopped"."""
    address: str
    pid: int | None
    log: str


DEFAULT_BROKERS: Final = 3
DEFAULT_PORT: Final = 9092


class LocalCluster:
    """The local cluster whose files are in `directory`. `tell` is a function that is called with each progress message;
    a message is one sentence.
    """

    def __init__(self, directory: Path, tell: Callable[[str], None]) -> None:
        self.directory = directory.absolute()
        self._tell = tell

    def up(self, wanted: Wanted) -> list[Member]:
        """Start the processes that are not running; returns the brokers when all of them serve.

        Raises ClusterError, JavaNotFound, JarsNotFound, ZooKeeperStartError, StateFileError.
        """
        make_private_directory(self.directory)
        with self._alone():
            state = planned(load_state(self.directory), wanted)
            self._check_ports(state)
            state.save(self.directory)
            self._start_zookeeper(state)
            with_data = [broker for broker in state.brokers if self._has_data(broker)]
            for broker in with_data:
                self._start_broker(state, broker)
            # Brokers with data start first, so that no new broker founds an empty cluster.
            if with_data:
                self._wait_for(with_data, state)
            for broker in state.brokers:
                self._start_broker(state, broker)
            self._wait_for(state.brokers, state)
            self._tell_what_is_outdated(state)
            return state.brokers

    def down(self) -> None:
        """Stop all processes, brokers before ZooKeeper servers; the data stay on disk. Raises ClusterError."""
        with self._existing() as state:
            for members in (state.brokers, state.zookeepers):
                running = [member for member in members if member.process is not None]
                for member in running:
                    assert member.process is not None
                    member.process.terminate()
                    member.process.resume()
                for member in running:
                    self._until_stopped(member, state)

    def _until_stopped(self, member: Member, state: ClusterState) -> None:
        """Wait until a member (broker or ZooKeeper server) has ended after SIGTERM. Send SIGTERM only once, because a
        second SIGTERM would interrupt the controlled shutdown.
        """
        if member.process is not None and not member.process.wait(STOP_SECONDS):
            self._tell(f"process {member.pid} did not stop within {STOP_SECONDS:.0f} s and was killed")
            member.process.kill()
        member.process = None
        state.save(self.directory)

    def stop(self, name: str) -> None:
        """Stop a member with SIGTERM; a broker moves its leaderships to other brokers first. Raises ClusterError."""
        with self._existing() as state:
            process = self._running(state, name)
            process.terminate()
            process.resume()
            self._until_stopped(find_member(state, name), state)

    def kill(self, name: str) -> None:
        """Kill a member (broker or ZooKeeper server) with kill -9. Raises ClusterError."""
        with self._existing() as state:
            self._running(state, name).kill()

    def pause(self, name: str) -> None:
        """Pause a member with SIGSTOP: the process keeps its connections and does not respond. Raises ClusterError."""
        with self._existing() as state:
            self._running(state, name).pause()

    def resume(self, name: str) -> None:
        """Resume a paused member (broker or ZooKeeper server). Raises ClusterError."""
        with self._existing() as state:
            self._running(state, name).resume()

    def start(self, name: str) -> None:
        """Start a killed member (broker or ZooKeeper server), and wait until the member serves. Raises ClusterError,
        JavaNotFound, JarsNotFound, ZooKeeperStartError, StateFileError.
        """
        with self._existing() as state:
            member = find_member(state, name)
            if member.process is not None and member.process.is_running:
                raise ClusterError(f"{name} is running already, with pid {member.pid}")
            if not is_free(member.port):
                raise ClusterError(f"the port {member.port} of {name} is used by another process")
            if member in state.zookeepers:
                self._ensemble(state).restart(member.number)
            else:
                self._start_broker(state, member)
                self._wait_for([member], state)

    def restart(self, names: Sequence[str] = ()) -> None:
        """Restart brokers of the local cluster one after the other, by default all running brokers. Before each
        restart, wait until all replicas are in sync.

        At the end, the preferred replicas are elected as leaders. Raises ClusterError, JavaNotFound, JarsNotFound,
        ZooKeeperStartError, StateFileError.
        """
        with self._existing() as state:
            chosen = [find_member(state, name) for name in names] or [
                each for each in state.brokers if is_running(each)
            ]
            for broker in chosen:
                if broker in state.zookeepers:
                    raise ClusterError("a ZooKeeper server is restarted by kill and start")
                self._running(state, f"{BROKER}{broker.number}")
            if not chosen:
                raise ClusterError("no broker is running (oncelog cluster up)")
            self._until_in_sync(state)
            for broker in chosen:
                self._restart_broker(state, broker)
            moved = asyncio.run(elect_preferred_leaders(",".join(map(address_of, chosen))))
            self._tell(f"preferred leaders: {moved} partitions led by another broker than before")

    def _restart_broker(self, state: ClusterState, broker: Member) -> None:
        began = time.monotonic()
        process = self._running(state, f"{BROKER}{broker.number}")
        process.terminate()
        process.resume()
        self._until_stopped(broker, state)
        self._start_broker(state, broker)
        self._wait_for([broker], state)
        serving = time.monotonic()
        self._until_in_sync(state)
        self._tell(
            f"broker {broker.number}: stopped and serving again in {serving - began:.1f} s, all replicas in sync "
            f"{time.monotonic() - serving:.1f} s later"
        )

    def _until_in_sync(self, state: ClusterState) -> None:
        """Wait until every running broker reports that all replicas are in sync. Raises ClusterError."""
        deadline = time.monotonic() + SYNC_SECONDS
        for broker in state.brokers:
            while state_of(broker) == "running" and (missing := asyncio.run(out_of_sync_for(broker))) != []:
                if time.monotonic() > deadline:
                    shown = " ".join((missing or ["unknown: it does not answer"])[:SHOWN_PARTITIONS])
                    raise ClusterError(
                        f"broker {broker.number} does not see all replicas in sync after {SYNC_SECONDS:.0f} s; "
                        f"out of sync: {shown}"
                    )
                time.sleep(POLL_SECONDS)

    def status(self) -> list[MemberStatus]:
        """Return the status of all members (brokers and ZooKeeper servers). Raises ClusterError if there is no cluster
        in the directory, StateFileError.
        """
        state = self._load()
        servers = [(f"{ZOOKEEPER}{each.number}", each, self._server(each).log) for each in state.zookeepers]
        brokers = [(f"{BROKER}{each.number}", each, log_of(self.directory, each)) for each in state.brokers]
        return [
            MemberStatus(name, state_of(each), address_of(each), each.pid if is_running(each) else None, str(log))
            for name, each, log in servers + brokers
        ]

    # --- state

    def _load(self) -> ClusterState:
        state = load_state(self.directory)
        if state is None:
            raise ClusterError(f"no cluster in {self.directory} (oncelog cluster up)")
        return state

    @contextmanager
    def _existing(self) -> Iterator[ClusterState]:
        self._load()
        with self._alone():
            yield self._load()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Context manager that locks the cluster. Raises ClusterError if another command is working on the cluster."""
        with opened_privately(self.directory / "cluster.lock", "w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ClusterError(f"another command is already working on the cluster in {self.directory}") from None
            yield

    def _running(self, state: ClusterState, name: str) -> LocalProcess:
        process = find_member(state, name).process
        if process is None or not process.is_running:
            raise ClusterError(f"{name} is not running (oncelog cluster start {name})")
        return process

    # --- ZooKeeper

    def _server(self, member: Member) -> ZooKeeperServer:
        return ZooKeeperServer(self.directory / f"{ZOOKEEPER}{member.number}", member.port, member.process)

    def _ensemble(self, state: ClusterState, servers: tuple[ZooKeeperServer, ...] | None = None) -> Ensemble:
        java = find_java()
        jars = provide_jars(self._tell)
        if servers is None:
            servers = tuple(self._server(member) for member in state.zookeepers)
        return Ensemble(
            self.directory,
            java,
            jars,
            size=state.zookeeper_count,
            servers=servers,
            on_launch=lambda launched: self._remember(state, launched),
        )

    def _start_zookeeper(self, state: ClusterState) -> None:
        """Start ZooKeeper. If no process of the cluster is running, new ports are chosen, because another program may
        use the old ports now."""
        is_fresh = not any(is_running(member) for member in state.zookeepers + state.brokers)
        ensemble = self._ensemble(state, () if is_fresh else None)
        self._tell(
            f"ZooKeeper: {ensemble.size} of {ensemble.jars.origin}, by Java {ensemble.java.version} "
            f"({ensemble.java.origin})"
        )
        ensemble.start()

    def _remember(self, state: ClusterState, servers: Sequence[ZooKeeperServer]) -> None:
        state.zookeepers = []
        for number, server in enumerate(servers, 1):
            member = Member(number, server.port)
            member.process = server.process
            state.zookeepers.append(member)
        state.save(self.directory)

    # --- brokers

    def _check_ports(self, state: ClusterState) -> None:
        for broker in state.brokers:
            if not is_running(broker) and not is_free(broker.port):
                raise ClusterError(
                    f"the port {broker.port}, for broker {broker.number}, is used by another process: choose "
                    "other ports for a new cluster with --port"
                )

    def _has_data(self, broker: Member) -> bool:
        """Whether the broker's data directory already belongs to a cluster, even if this broker is the cluster's only
        broker.
        """
        return (self.directory / f"broker-{broker.number}" / META_PROPERTIES_FILE).exists()

    def _start_broker(self, state: ClusterState, broker: Member) -> None:
        process = broker.process
        if process is not None and process.is_running:
            process.resume()
            return
        connect_string = ",".join(address_of(server) for server in state.zookeepers)
        settings = settings_of(self.directory, broker, len(state.brokers), connect_string, state.settings)

        def note(process: LocalProcess) -> None:
            broker.process, broker.settings = process, settings
            state.save(self.directory)

        start_broker(self.directory, broker, settings, note)

    def _tell_what_is_outdated(self, state: ClusterState) -> None:
        """Report the running brokers that were started with other settings than the saved settings of the cluster."""
        for broker in state.brokers:
            connect_string = ",".join(address_of(server) for server in state.zookeepers)
            wanted = settings_of(self.directory, broker, len(state.brokers), connect_string, state.settings)
            changed = changed_settings(broker.settings, wanted)
            if changed:
                self._tell(
                    f"broker {broker.number} runs with older settings ({', '.join(changed)}) until it is restarted: "
                    f"oncelog cluster restart {broker.number}"
                )

    def _wait_for(self, brokers: list[Member], state: ClusterState) -> None:
        """Wait until each of `brokers` responds, and every running broker lists each of them as registered. Raises
        ClusterError."""
        running = [broker for broker in state.brokers if state_of(broker) == "running"]
        awaited = frozenset(broker.number for broker in brokers)
        deadline = time.monotonic() + SERVE_SECONDS
        for broker in running:
            while not awaited <= asyncio.run(members_seen_by(broker)):
                for each in brokers:
                    if not is_running(each):
                        raise ClusterError(f"broker {each.number} ended: {self._last_words(each)}")
                if time.monotonic() > deadline:
                    raise ClusterError(
                        f"broker {broker.number} does not see all of {sorted(awaited)} after {SERVE_SECONDS:.0f} s: "
                        f"{self._last_words(broker)}"
                    )
                time.sleep(POLL_SECONDS)

    def _last_words(self, broker: Member) -> str:
        log = log_of(self.directory, broker)
        return log.read_text(errors="replace")[-LOG_CHARACTERS:].strip() or f"{log} is empty"


def planned(state: ClusterState | None, wanted: Wanted) -> ClusterState:
    """Return the state after the command `up`; an existing cluster can only grow. Raises ClusterError."""
    if state is None:
        state = ClusterState(zookeeper_count=wanted.zookeepers or 1)
    elif wanted.zookeepers not in (None, state.zookeeper_count):
        raise ClusterError(
            f"this cluster has {state.zookeeper_count} ZooKeeper servers, and their number cannot be changed"
        )
    if wanted.settings:
        merged = {**state.settings, **wanted.settings}
        state.settings = {key: value for key, value in merged.items() if value}
        try:
            BrokerConfig.of(state.settings)
        # Check the settings in the options before saving them, because no broker could start with invalid settings.
        except InvalidConfig as error:
            raise ClusterError(f"--set: {error}") from error
    there = len(state.brokers)
    first = state.brokers[0].port if there else wanted.port or DEFAULT_PORT
    if there and wanted.port not in (None, first):
        raise ClusterError(f"the first port of this cluster is {first} and cannot be changed")
    count = wanted.brokers or there or DEFAULT_BROKERS
    if count < there:
        raise ClusterError(f"this cluster has {there} brokers, and cannot shrink")
    state.brokers += [Member(number, first + number - 1) for number in range(there + 1, count + 1)]
    return state


def changed_settings(running: Mapping[str, str] | None, wanted: Mapping[str, str]) -> list[str]:
    """Return the keys of the settings that a restart of this broker would change; empty if the settings of the running
    process are unknown.
    """
    if running is None:
        return []
    keys = sorted(running.keys() | wanted.keys())
    return [key for key in keys if running.get(key) != wanted.get(key)]


def find_member(state: ClusterState, name: str) -> Member:
    """Find a member by a name such as `2`, `broker-2` or `zookeeper-1`. Raises ClusterError."""
    members = state.zookeepers if name.startswith(ZOOKEEPER) else state.brokers
    number = name.removeprefix(ZOOKEEPER).removeprefix(BROKER)
    for member in members:
        if str(member.number) == number:
            return member
    names = [f"{BROKER}{each.number}" for each in state.brokers] + [f"{ZOOKEEPER}{n.number}" for n in state.zookeepers]
    raise ClusterError(f"unknown name {name!r}; known: {', '.join(names)}")


def is_running(member: Member) -> bool:
    """Whether the member's process exists; a paused process counts as running."""
    return member.process is not None and member.process.is_running


def state_of(member: Member) -> str:
    process = member.process
    if process is None or not process.is_running:
        return "stopped"
    return "paused" if process.is_paused else "running"
