"""The REST interface of a Kafka Connect worker with two connectors and without Kafka; it uses real HTTP on the event
loop of the test.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

SECRET = "hunter2"
ORDERS = {
    "info": {
        "name": "orders <sink>",
        "type": "sink",
        "config": {"connector.class": "Jdbc", "connection.password": SECRET, "sasl.jaas.config": SECRET, "topics": "o"},
    },
    "status": {
        "name": "orders <sink>",
        "type": "sink",
        "connector": {"state": "RUNNING", "worker_id": "w:8083"},
        "tasks": [
            {"id": 0, "state": "RUNNING", "worker_id": "w:8083"},
            {"id": 1, "state": "FAILED", "worker_id": "w:8083", "trace": "java.lang.Exception: <b>disk</b>"},
        ],
    },
}


@dataclass
class FakeConnect:
    """`asked` lists (method, path) of each request. `answer` is the body of every response; None means the response
    that Connect would give.
    """

    port: int = 0
    asked: list[tuple[str, str]] = field(default_factory=list)
    authorization: set[str] = field(default_factory=set)
    answer: bytes | None = None
    delay_s: float = 0.0

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            method, path, _ = head.split("\r\n")[0].split()
            self.asked.append((method, path))
            self.authorization |= {line for line in head.split("\r\n") if line.lower().startswith("authorization:")}
            await asyncio.sleep(self.delay_s)
            if self.answer is not None:
                writer.write(self.answer)
                await writer.drain()
            else:
                status, content = self._said(method, path)
                body = b"" if content is None else json.dumps(content).encode()
                writer.write(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % (status, len(body)))
                writer.write(body)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    def _said(self, method: str, path: str) -> tuple[int, Any]:
        name = "/connectors/orders%20%3Csink%3E"
        if method == "POST":
            return (
                (202, ORDERS["status"]) if path.startswith(name) else (404, {"error_code": 404, "message": "unknown"})
            )
        if path.startswith("/connectors?"):
            return 200, {"orders <sink>": ORDERS, "odd": {"info": None, "status": [1]}}
        if path == f"{name}/status":
            return 200, ORDERS["status"]
        if path == name:
            return 200, ORDERS["info"]
        return 404, {"error_code": 404, "message": "Connector x not found"}


@asynccontextmanager
async def kafka_connect() -> AsyncIterator[FakeConnect]:
    fake = FakeConnect()
    server = await asyncio.start_server(fake.serve, "127.0.0.1", 0)
    fake.port = server.sockets[0].getsockname()[1]
    yield fake
    server.close()
