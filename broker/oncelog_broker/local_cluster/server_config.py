"""Writes zoo.cfg, the configuration of a ZooKeeper server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from oncelog_broker.local_cluster.ports import LOOPBACK

COMMANDS: Final = "srvr,conf,ruok,mntr,cons"
"""The allowed four-letter commands of a server; the response to `conf` shows whether the server is the expected one,
and the response to `srvr` whether the server serves.
"""


class ServerPorts(NamedTuple):
    client: int
    peer: int = 0
    election: int = 0
    """`peer` and `election` are the ports at which the servers of an ensemble connect to each other."""


class Timing(NamedTuple):
    """Tick length and limits of session timeouts, in milliseconds. Without explicit limits, ZooKeeper would allow only
    session timeouts from 2 to 20 ticks.
    """

    tick: int = 500
    least_session: int = 1000
    longest_session: int = 60_000


NO_SETTINGS: Final[Mapping[str, object]] = {}


def server_config(
    data: Path,
    ports: Sequence[ServerPorts],
    timing: Timing,
    *,
    is_synced: bool,
    others: Mapping[str, object] = NO_SETTINGS,
) -> str:
    """Return the configuration of each server of an ensemble; `ports` has the ports of each server. One element in
    `ports` means a single server without an ensemble.

    `is_synced`: whether a change is synced to disk before the response, so that the change survives a power failure;
    otherwise changes survive only a restart. `others`: further settings of zoo.cfg.
    """
    settings: dict[str, object] = {
        "tickTime": timing.tick,
        "minSessionTimeout": timing.least_session,
        "maxSessionTimeout": timing.longest_session,
        "dataDir": data,
        "maxClientCnxns": 0,
        "forceSync": "yes" if is_synced else "no",
        "preAllocSize": 1024,
        "admin.enableServer": "false",
        "4lw.commands.whitelist": COMMANDS,
        "autopurge.snapRetainCount": 3,
        "autopurge.purgeInterval": 1,
    }
    if len(ports) == 1:
        settings |= {"clientPort": ports[0].client, "clientPortAddress": LOOPBACK}
    else:
        settings |= {"initLimit": 20, "syncLimit": 6, "cnxTimeout": 1, "reconfigEnabled": "false"}
        settings |= {"standaloneEnabled": "false"}
        for each, (client, peer, election) in enumerate(ports, 1):
            settings[f"server.{each}"] = f"{LOOPBACK}:{peer}:{election};{LOOPBACK}:{client}"
    return "".join(f"{key}={value}\n" for key, value in {**settings, **others}.items())
