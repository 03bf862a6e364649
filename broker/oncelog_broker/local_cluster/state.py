"""The state of a local cluster between two commands: processes, ports, settings.

It is `cluster.json` in the cluster's directory, replaced atomically. A process is listed before it runs, with its start
time, so that no later command misses it or mistakes another process for it.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from oncelog_broker.local_cluster.process import LocalProcess
from oncelog_broker.runtime.private_files import write_privately

FILE: Final = "cluster.json"
FORMAT: Final = 1


class StateFileError(Exception):
    """The file exists and is unreadable; the message names it."""


@dataclass
class Member:
    """A broker or ZooKeeper server: its number from 1 (a broker's id), its client port, its last process."""

    number: int
    port: int
    pid: int | None = None
    started: str | None = None
    settings: dict[str, str] | None = None
    """The settings that the broker was started with."""

    @property
    def process(self) -> LocalProcess | None:
        if self.pid is None or self.started is None:
            return None
        return LocalProcess(self.pid, self.started)

    @process.setter
    def process(self, process: LocalProcess | None) -> None:
        self.pid, self.started = (None, None) if process is None else (process.pid, process.started)


@dataclass
class ClusterState:
    brokers: list[Member] = field(default_factory=list)
    zookeepers: list[Member] = field(default_factory=list)
    zookeeper_count: int = 1
    """The number requested; `zookeepers` is empty until their first start."""
    settings: dict[str, str] = field(default_factory=dict)
    """Broker settings that `up` was given, for every broker."""

    def save(self, directory: Path) -> None:
        unfinished = directory / f"{FILE}.unfinished"
        write_privately(unfinished, json.dumps({"format": FORMAT, **asdict(self)}, indent=2) + "\n")
        os.replace(unfinished, directory / FILE)


def load_state(directory: Path) -> ClusterState | None:
    """None if there is no cluster in `directory`. Raises StateFileError."""
    path = directory / FILE
    try:
        return _state(json.loads(path.read_text()))
    except FileNotFoundError:
        return None
    except (KeyError, TypeError, ValueError) as error:
        raise StateFileError(f"{path} is not a state of a local cluster: {error!r}") from None


def _state(fields: dict[str, Any]) -> ClusterState:
    """Raises KeyError, TypeError or ValueError for a missing, extra or malformed field."""
    if fields.pop("format") != FORMAT:
        raise ValueError(f"format {FORMAT} expected")
    for name in ("brokers", "zookeepers"):
        fields[name] = [Member(**member) for member in fields[name]]
    return ClusterState(**fields)
