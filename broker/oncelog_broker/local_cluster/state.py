"""The state of a local cluster between two commands: processes, ports, settings.

The state is stored in the file `cluster.json` in the cluster's directory; the file is replaced atomically. A process is
listed with its start time before it runs, so that a later command neither misses the process nor mistakes another
process for it.
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
    """Raised if the state file exists but is unreadable; the message names the file."""


@dataclass
class Member:
    """A broker or ZooKeeper server: its number, counted from 1 (the id of a broker), its client port, and its running
    process or, if none runs, its last process.
    """

    number: int
    port: int
    pid: int | None = None
    started: str | None = None
    settings: dict[str, str] | None = None
    """The settings with which the broker was started; None for a ZooKeeper server."""

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
    """The requested number of ZooKeeper servers; `zookeepers` is empty until the first start of the servers."""
    settings: dict[str, str] = field(default_factory=dict)
    """The settings that the user has given for every broker, as options of the command `up`."""

    def save(self, directory: Path) -> None:
        unfinished = directory / f"{FILE}.unfinished"
        write_privately(unfinished, json.dumps({"format": FORMAT, **asdict(self)}, indent=2) + "\n")
        os.replace(unfinished, directory / FILE)


def load_state(directory: Path) -> ClusterState | None:
    """Load the state of the cluster in `directory`; returns None if there is no cluster. Raises StateFileError."""
    path = directory / FILE
    try:
        return _state(json.loads(path.read_text()))
    except FileNotFoundError:
        return None
    except (KeyError, TypeError, ValueError) as error:
        raise StateFileError(f"{path} is not a state of a local cluster: {error!r}") from None


def _state(fields: dict[str, Any]) -> ClusterState:
    """Return the state from the fields of the file. Raises KeyError, TypeError or ValueError for a missing, extra or
    malformed field.
    """
    if fields.pop("format") != FORMAT:
        raise ValueError(f"format {FORMAT} expected")
    for name in ("brokers", "zookeepers"):
        fields[name] = [Member(**member) for member in fields[name]]
    return ClusterState(**fields)
