"""Reads and restarts connectors of Kafka Connect, by its REST interface.

Requests go only to the addresses in the console's configuration; redirects are not followed, and no proxy is used. The
size and the duration of a response are limited.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

import httpx

from oncelog.cli.redaction import is_secret_name, redacted
from oncelog_console.limits import CONNECT_SECONDS, MAX_CONNECT_BYTES, MAX_CONNECTORS, MAX_SHOWN_CHARACTERS

ALSO_SECRET: Final = re.compile(r"passw|headers?$|encryption[._-]?key|ssl\..*key$", re.IGNORECASE)
"""Configuration keys whose values are not shown, in addition to the secret keys of the cluster's own settings."""
HIDDEN: Final = "not told"
FIRST_ERROR: Final = 400
MESSAGE_CHARACTERS: Final = 300


class ConnectFailed(Exception):
    """Raised if a Kafka Connect did not respond, or refused a request. The message gives the reason, without the
    password in the address.
    """


@dataclass(frozen=True, slots=True)
class Task:
    """A task of a connector; `trace`: the beginning of the stack trace, if the task has failed."""

    number: int
    state: str
    worker: str
    trace: str


@dataclass(frozen=True, slots=True)
class Connector:
    """A connector; `kind` is source or sink. `config` and `trace` contain no secrets, and are set only if the connector
    was read alone, not in a list.
    """

    name: str
    kind: str
    state: str
    worker: str
    trace: str = ""
    tasks: tuple[Task, ...] = ()
    config: tuple[tuple[str, str], ...] = field(default=())

    @property
    def failed(self) -> int:
        """The number of failed tasks."""
        return sum(task.state == "FAILED" for task in self.tasks)


class Connect:
    """Client of one Kafka Connect. `shown`: the address without user and password."""

    def __init__(self, address: str) -> None:
        url = httpx.URL(address.rstrip("/"))
        self.shown = str(url.copy_with(username=None, password=None))
        self._base = self.shown.rstrip("/")
        auth = httpx.BasicAuth(url.username, url.password) if url.username else None
        self._client = httpx.AsyncClient(
            auth=auth,
            timeout=CONNECT_SECONDS,
            follow_redirects=False,
            trust_env=False,
            verify=url.scheme == "https",
            headers={"Accept": "application/json", "Accept-Encoding": "identity"},
        )

    async def close(self) -> None:
        await self._client.aclose()

    async def connectors(self) -> list[Connector]:
        """Return at most MAX_CONNECTORS connectors, sorted by name, without configurations. Raises ConnectFailed."""
        answer = await self._ask("GET", "/connectors?expand=info&expand=status")
        found = _mapping(answer)
        return [
            _connector(name, _mapping(found[name]).get("info"), _mapping(found[name]).get("status"))
            for name in sorted(found)[:MAX_CONNECTORS]
        ]

    async def connector(self, name: str) -> Connector:
        """Return one connector with its configuration. Raises ConnectFailed."""
        path = f"/connectors/{_part(name)}"
        info, status = await asyncio.gather(self._ask("GET", path), self._ask("GET", f"{path}/status"))
        return await asyncio.to_thread(_connector, name, info, status, is_whole=True)

    async def restart(self, name: str, *, task: int | None, only_failed: bool) -> None:
        """Restart a task, or a connector with its tasks. Raises ConnectFailed."""
        await self._ask("POST", restart_path(name, task=task, only_failed=only_failed))

    async def _ask(self, method: str, path: str) -> Any:
        try:
            async with asyncio.timeout(CONNECT_SECONDS), self._client.stream(method, self._base + path) as response:
                received = bytearray()
                async for part in response.aiter_raw():
                    received += part
                    if len(received) > MAX_CONNECT_BYTES:
                        raise ConnectFailed(f"the answer is longer than {MAX_CONNECT_BYTES} bytes")
                status = response.status_code
        except TimeoutError:
            raise ConnectFailed(f"no answer within {CONNECT_SECONDS:.0f} s") from None
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise ConnectFailed(f"it cannot be reached: {type(error).__name__}") from error
        return _document(status, bytes(received))


def restart_path(name: str, *, task: int | None, only_failed: bool) -> str:
    """Return the path that restarts a task, or a connector with its tasks. Raises ConnectFailed for a name that no
    connector can have.
    """
    if task is not None:
        return f"/connectors/{_part(name)}/tasks/{task}/restart"
    return f"/connectors/{_part(name)}/restart?includeTasks=true&onlyFailed={str(only_failed).lower()}"


def _part(name: str) -> str:
    """Return a name, encoded as one part of a path, so that a name with `/` or `..` cannot lead to another path."""
    if name in ("", ".", ".."):
        raise ConnectFailed("this is not a valid connector name")
    return quote(name, safe="")


def _document(status: int, received: bytes) -> Any:
    if not received and status < FIRST_ERROR and not 300 <= status < FIRST_ERROR:
        return None
    try:
        document = json.loads(received)
    except (ValueError, RecursionError):
        raise ConnectFailed(f"it does not answer as Kafka Connect (HTTP {status})") from None
    if status >= 300:
        message = document.get("message") if isinstance(document, dict) else None
        told = message if isinstance(message, str) else "it refuses"
        raise ConnectFailed(f"{redacted(told)[:MESSAGE_CHARACTERS]} (HTTP {status})")
    return document


def _connector(name: str, info: Any, status: Any, *, is_whole: bool = False) -> Connector:
    """Return the connector from Connect's response, without fields of unexpected types. `is_whole`: whether to include
    the configuration and the traces; these take time, because they are searched for secrets.
    """
    info, status = _mapping(info), _mapping(status)
    own = _mapping(status.get("connector"))
    tasks = status.get("tasks")
    config = _mapping(info.get("config")) if is_whole else {}
    return Connector(
        name,
        _text(info.get("type") or status.get("type")),
        _text(own.get("state")),
        _text(own.get("worker_id")),
        redacted(_text(own.get("trace"))) if is_whole else "",
        tuple(_task(each, is_whole=is_whole) for each in tasks if isinstance(each, dict))
        if isinstance(tasks, list)
        else (),
        tuple(
            (str(key), _shown(str(key), value)) for key, value in sorted(config.items(), key=lambda item: str(item[0]))
        ),
    )


def _task(told: Mapping[str, Any], *, is_whole: bool) -> Task:
    number = told.get("id")
    return Task(
        number if isinstance(number, int) else -1,
        _text(told.get("state")),
        _text(told.get("worker_id")),
        redacted(_text(told.get("trace"))) if is_whole else "",
    )


def _shown(key: str, value: Any) -> str:
    """Return the value of a setting to show; passwords in addresses, such as those of databases, are removed."""
    return HIDDEN if is_secret_name(key) or ALSO_SECRET.search(key) else redacted(_text(value))


def _text(value: Any) -> str:
    return "" if value is None else str(value)[:MAX_SHOWN_CHARACTERS]


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
