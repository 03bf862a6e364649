"""Metadata stores for the broker's tests: a new store, and a store whose connection a test can break."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from oncelog_broker.metadata.stores.embedded import EmbeddedStore
from oncelog_broker.metadata.stores.store import ConnectionLost


class UnreliableStore:
    """Forwards all calls to `store`. `lose_replies` and `lose_requests` say of how many more writes the reply or the
    request is lost.

    `before_write` is awaited once, before the next write is forwarded, so that a test can interfere.
    """

    def __init__(self, store: EmbeddedStore) -> None:
        self.reliable = store
        self.lose_replies = 0
        self.lose_requests = 0
        self.unreachable = False
        self.before_write: Callable[[], Awaitable[object]] | None = None

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.reliable, name)
        if name in ("set", "create", "delete", "multi"):
            return self._writing(method)
        if name in ("get", "get_many", "exists", "children"):
            return self._reading(method)
        return method

    def _reading(self, method: Any) -> Any:
        async def call(*arguments: Any, **named: Any) -> Any:
            if self.unreachable:
                raise ConnectionLost("", "unreachable")
            return await method(*arguments, **named)

        return call

    def _writing(self, method: Any) -> Any:
        async def call(*arguments: Any, **named: Any) -> Any:
            if self.unreachable:
                raise ConnectionLost("", "unreachable")
            if self.before_write is not None:
                interfere, self.before_write = self.before_write, None
                await interfere()
            if self.lose_requests:
                self.lose_requests -= 1
                raise ConnectionLost("", "the request was lost")
            result = await method(*arguments, **named)
            if self.lose_replies:
                self.lose_replies -= 1
                raise ConnectionLost("", "the reply was lost")
            return result

        return call


@pytest.fixture
async def embedded_store(tmp_path: Path) -> AsyncIterator[EmbeddedStore]:
    store = EmbeddedStore.open(tmp_path / "metadata.db")
    yield store
    await store.close()


@pytest.fixture
def unreliable_store(embedded_store: EmbeddedStore) -> UnreliableStore:
    return UnreliableStore(embedded_store)
