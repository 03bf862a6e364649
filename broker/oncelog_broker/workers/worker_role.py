"""The value of the hidden option `--worker`. With this option a supervisor passes to a worker the values that are not
settings.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import NamedTuple

from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.config.listeners import Listener, parsed_listeners
from oncelog_broker.metadata.opening import StoreOpening, SupervisedOpening


class WorkerRole(NamedTuple):
    """The role of one process as a worker."""

    number: int
    """The number of the worker, counted from 1."""
    shared_listeners: tuple[str, ...]
    """The addresses on which all workers of the supervisor listen."""
    store_place: str = ""
    """The path of the supervisor's metadata store; "" if the workers use ZooKeeper."""
    store_descriptor: int = -1
    """The file descriptor of the connection to the supervisor's store."""

    @property
    def text(self) -> str:
        """Return the value of the option `--worker` for this role."""
        return json.dumps(self._asdict())

    @classmethod
    def parse(cls, text: str) -> WorkerRole:
        """Return the role that the value of the option `--worker` (created by `text`) describes."""
        fields = json.loads(text)
        shared = tuple(fields["shared_listeners"])
        return cls(fields["number"], shared, fields["store_place"], fields["store_descriptor"])

    def listeners(self, config: BrokerConfig) -> tuple[Listener, ...]:
        """Return the addresses on which all workers listen, as shared listeners of the broker. Raises InvalidConfig."""
        return parsed_listeners(config, self.shared_listeners)

    def opening(self, on_gone: Callable[[], None]) -> StoreOpening | None:
        """Return the object that opens the supervisor's store; None if the workers use ZooKeeper. `on_gone` is called
        when the supervisor has ended.
        """
        if not self.store_place:
            return None
        return SupervisedOpening(self.store_descriptor, self.store_place, on_gone)
