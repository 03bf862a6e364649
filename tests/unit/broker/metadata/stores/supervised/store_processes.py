"""Programs that tests of the supervised store start: `worker DESCRIPTOR PATH`, or `supervisor DESCRIPTOR FILE SECONDS`.

A worker registers in the store at the other end of the socket DESCRIPTOR by creating the ephemeral node PATH, in each
of its sessions. A supervisor serves the store in FILE over the socket DESCRIPTOR, with a session timeout of SECONDS.
Worker and supervisor run until they are killed, or until the other end of the socket is closed.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from pathlib import Path

import uvloop

from oncelog_broker.metadata.stores.embedded import EmbeddedStore
from oncelog_broker.metadata.stores.store import SessionState
from oncelog_broker.metadata.stores.supervised.store_server import StoreServer
from oncelog_broker.metadata.stores.supervised.supervised_store import SupervisedStore
from oncelog_broker.runtime.clock import SystemClock


async def _worker(connection: socket.socket, path: str) -> None:
    gone = asyncio.Event()
    store = await SupervisedStore.open(connection, SystemClock(), gone.set)
    registering: list[asyncio.Task[object]] = []

    def register(state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            registering.append(asyncio.create_task(store.create(path, ephemeral=True)))

    store.watch_session(register)
    register(store.session)
    await gone.wait()


async def _supervisor(connection: socket.socket, file: str, seconds: str) -> None:
    server = StoreServer(EmbeddedStore.open(Path(file)), float(seconds))
    await server.attach(connection)
    print("serving", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    role, descriptor, *arguments = sys.argv[1:]
    end = socket.socket(fileno=int(descriptor))
    if role == "worker":
        uvloop.run(_worker(end, *arguments))  # uvloop, because a real worker is a broker
    else:
        asyncio.run(_supervisor(end, *arguments))
