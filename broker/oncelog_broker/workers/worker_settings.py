"""Derives the settings of each worker from the settings that are given for all workers. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from oncelog_broker.config import broker_keys as keys
from oncelog_broker.config import share_keys
from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.config.declared import ConfigKey, InvalidConfig
from oncelog_broker.config.http_keys import HTTP_LISTENER, MAX_PORT, http_address
from oncelog_broker.config.listeners import Listener, advertised_listeners, listeners
from oncelog_broker.config.zookeeper_keys import ZOOKEEPER_CONNECT

MAX_WORKERS: Final = 256
"""Maximum number of workers of one machine."""
OF_ONE_DISK: Final[Sequence[ConfigKey[int]]] = (
    keys.OFFSETS_TOPIC_REPLICATION_FACTOR,
    keys.TRANSACTION_STATE_LOG_REPLICATION_FACTOR,
    keys.TRANSACTION_STATE_LOG_MIN_ISR,
    share_keys.SHARE_STATE_TOPIC_REPLICATION_FACTOR,
    share_keys.SHARE_STATE_TOPIC_MIN_ISR,
)
"""Replication settings whose default is 1 if the workers do not use ZooKeeper, because several replicas on one machine
share one disk.
"""


class PortsNeeded(NamedTuple):
    """The addresses that a supervisor reserves; port 0 means any free port."""

    shared: tuple[Listener, ...]
    """The configured listeners; every worker listens on each of these listeners."""
    own: tuple[tuple[Listener, ...], ...]
    """Maps each worker's number to the worker's own listeners, one for each configured listener."""


def worker_count(text: str, cores: int) -> int:
    """Return the number of workers in the value of `--workers`; "auto" is the number of cores, at most MAX_WORKERS.
    Raises ValueError.
    """
    if text.strip().lower() == "auto":
        return min(cores, MAX_WORKERS)
    if not text.strip().isdecimal() or not 1 <= int(text) <= MAX_WORKERS:
        raise ValueError(f"--workers is a number from 1 to {MAX_WORKERS}, or auto, not {text!r}")
    return int(text)


def ports_needed(config: BrokerConfig, workers: int) -> PortsNeeded:
    """Return the own listeners of each worker. The port of worker k is the configured port plus k times the number of
    listeners. Raises InvalidConfig if two ports are the same, or a port number is too high.
    """
    shared = listeners(config)
    own = tuple(tuple(_moved(each, number * len(shared)) for each in shared) for number in range(1, workers + 1))
    taken: dict[tuple[str, int], Listener] = {}
    for each in (*shared, *(listener for of_worker in own for listener in of_worker)):
        if each.port and (each.host, each.port) in taken:
            raise InvalidConfig(
                f"{keys.LISTENERS.name}: with {workers} workers, {taken[each.host, each.port]} and {each} have the "
                "same port: the port of worker k is the configured one plus k times the number of listeners. Choose "
                "consecutive ports for the listeners, or ports that are further apart"
            )
        taken[each.host, each.port] = each
    return PortsNeeded(shared, own)


def worker_settings(
    config: BrokerConfig, number: int, directories: Sequence[str], own: Sequence[Listener], machine: str
) -> dict[str, str]:
    """Return the settings of one worker that differ from the settings that are given for all workers.

    `number`: the number of the worker, counted from 1. `directories`: the data directories of the worker. `own`: the
    worker's own listeners, with actual port numbers. `machine`: the name of this machine. Raises InvalidConfig.
    """
    settings = {
        keys.NODE_ID.name: str(config.node_id + number - 1),
        keys.LOG_DIRS.name: ",".join(directories),
        keys.LISTENERS.name: ",".join(map(str, own)),
    }
    if config[keys.ADVERTISED_LISTENERS] is not None:
        shift = number * len(listeners(config))
        ports = {each.name: each.port for each in own}
        advertised = [
            _moved(each, shift) if each.port else each._replace(port=ports[each.name])
            for each in advertised_listeners(config, machine)
        ]
        settings[keys.ADVERTISED_LISTENERS.name] = ",".join(map(str, advertised))
    if config[keys.RACK] is None:
        settings[keys.RACK.name] = machine
    http = config[HTTP_LISTENER]
    if http is not None:
        first = http_address(http)
        port = first.port + number - 1 if first.port else 0
        settings[HTTP_LISTENER.name] = str(first._replace(port=_checked(port, HTTP_LISTENER.name)))
    if config[ZOOKEEPER_CONNECT] is None:
        settings |= {key.name: "1" for key in OF_ONE_DISK if not config.is_set(key)}
    return settings


def _moved(listener: Listener, by: int) -> Listener:
    """Return the listener with its port increased by this number; port 0 stays unchanged."""
    if not listener.port:
        return listener
    return listener._replace(port=_checked(listener.port + by, keys.LISTENERS.name))


def _checked(port: int, key: str) -> int:
    if port > MAX_PORT:
        raise InvalidConfig(f"{key}: the ports of the workers follow the configured one, and {port} is no port")
    return port
