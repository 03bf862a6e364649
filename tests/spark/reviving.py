"""Starts a broker again when it was killed at a point of `format("dying")`."""

from __future__ import annotations

import threading
from pathlib import Path

from broker_process import BrokerProcess
from dying import has_died
from foreign_clients import eventually

SECONDS = 300
"""The time limit for the death: the program must start first, which takes long on a busy machine."""


class reviving:  # noqa: N801  reads as a context
    """Start the broker again after its death, which the file `died` shows."""

    def __init__(self, broker: BrokerProcess, died: Path) -> None:
        self._thread = threading.Thread(target=self._revive, args=(broker, died))

    @staticmethod
    def _revive(broker: BrokerProcess, died: Path) -> None:
        eventually(lambda: has_died(died), "the broker dies", SECONDS)
        broker.wait_killed()
        broker.start()

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._thread.join()
