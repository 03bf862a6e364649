"""Restarts a broker that was killed at a point of `format("dying")`."""

from __future__ import annotations

import threading
from pathlib import Path

from broker_process import BrokerProcess
from dying import has_died
from foreign_clients import eventually

SECONDS = 300
"""Limit in seconds for waiting for the death, because the program must first start, which is slow on a busy machine."""


class reviving:  # noqa: N801  reads as a context
    """Restart the broker after its death, which the file `died` shows."""

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
