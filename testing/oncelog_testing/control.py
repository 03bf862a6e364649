"""Telling a broker what shall go wrong, and asking how often it did."""

from __future__ import annotations

import http.client
import json
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from oncelog_testing.broker import Broker

ANSWER_SECONDS: Final = 60.0
"""For an answer of the control; a busy machine may take some seconds."""
WAIT_SECONDS: Final = 30.0
"""For a fault to strike, by default."""


class BrokerGone(Exception):
    """The broker does not run: a fault has crashed it, or it was killed."""


class NotStruck(AssertionError):
    """What the test had ordered did not happen: it has not shown what it was to show."""


def ask(url: str, method: str, path: str, body: Any = None, more_seconds: float = 0.0) -> Any:
    """The control's answer. Raises ValueError with what is wrong with the question, OSError."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=ANSWER_SECONDS + more_seconds)
    try:
        headers = {"Content-Type": "application/json"}
        connection.request(method, path, json.dumps(body) if body is not None else None, headers)
        answer = connection.getresponse()
        content = json.loads(answer.read())
    finally:
        connection.close()
    if answer.status != HTTPStatus.OK:
        raise ValueError(content["error"])
    return content


class Fault:
    """Something that is to go wrong in a broker. As a context manager it is taken back at the end of the block."""

    def __init__(self, broker: Broker, number: int, order: dict[str, Any]) -> None:
        self._broker = broker
        self._number = number
        self._order = order
        self._process = broker.pid

    @property
    def struck(self) -> int:
        """How often it has happened so far."""
        if self._has_crashed_it:
            return 1
        return int(self._broker.ask("GET", f"/faults/{self._number}")["struck"])

    def wait(self, seconds: float = WAIT_SECONDS, *, times: int = 1) -> None:
        """Until it has happened so often. Raises NotStruck. In a coroutine: `await asyncio.to_thread(fault.wait)`."""
        if "crash" in self._order:
            if not self._has_crashed_it and not self._broker.wait_ended(seconds):
                raise NotStruck(f"{self} has not struck within {seconds:g} s")
            return
        path = f"/faults/{self._number}?struck={times}&wait_ms={int(seconds * 1000)}"
        struck = self._broker.ask("GET", path, more_seconds=seconds)["struck"]
        if struck < times:
            raise NotStruck(f"{self} has struck {struck} times within {seconds:g} s, not {times}")

    def remove(self) -> None:
        """Take it back; nothing to do where the broker has ended meanwhile, and the fault with it."""
        try:
            self._broker.ask("DELETE", f"/faults/{self._number}")
        except (BrokerGone, ValueError):
            pass

    @property
    def _has_crashed_it(self) -> bool:
        """Whether its broker is not the process any more that it was set in."""
        return "crash" in self._order and self._broker.pid != self._process

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def __repr__(self) -> str:
        details = ", ".join(f"{name}={value!r}" for name, value in self._order.items() if name != "point")
        return f"fail({self._order['point']!r}, {details})"
