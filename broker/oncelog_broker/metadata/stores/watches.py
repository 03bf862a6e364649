"""The callbacks that watch paths. All stores implement `MetadataStore.watch` with this module."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from oncelog_broker.metadata.stores.store import Unsubscribe, WatchCallback, check_path

_log = logging.getLogger(__name__)
_T = TypeVar("_T")


class Subscribers(Generic[_T]):
    """A list of callbacks that receive one value. Callbacks must not raise; if a callback raises, the exception is
    logged, and the other callbacks are still called.
    """

    def __init__(self) -> None:
        self._entries: list[tuple[str, Callable[[_T], None]]] = []

    def add(self, callback: Callable[[_T], None], key: str = "") -> Unsubscribe:
        entry = (key, callback)
        self._entries.append(entry)

        def unsubscribe() -> None:
            if entry in self._entries:
                self._entries.remove(entry)

        return unsubscribe

    def tell(self, told: _T) -> None:
        for _, callback in tuple(self._entries):
            self._call(callback, told)

    def _call(self, callback: Callable[[_T], None], told: _T) -> None:
        try:
            callback(told)
        except Exception:
            _log.exception("metadata store: a callback failed on %s", told)


class Watches(Subscribers[str]):
    """Watches on paths and everything below them."""

    def __init__(self) -> None:
        super().__init__()
        self._beneath: dict[str, str] = {}
        """For each path that was ever watched, the beginning of all paths below it."""

    def watch(self, path: str, callback: WatchCallback) -> Unsubscribe:
        """Call `callback` for changes at or below `path`. Raises ValueError for an illegal path."""
        check_path(path)
        self._beneath.setdefault(path, path.rstrip("/") + "/")
        return self.add(callback, path)

    def roots(self) -> list[str]:
        """Return each watched path, without duplicates."""
        return list(dict.fromkeys(root for root, _ in self._entries))

    def changed(self, paths: Iterable[str]) -> None:
        """Call the callbacks for these nodes, which were created, set or deleted."""
        changed = list(paths)
        for root, callback in tuple(self._entries):
            beneath = self._beneath[root]
            for path in changed:
                if path == root or path.startswith(beneath):
                    self._call(callback, path)

    def all_may_have_changed(self) -> None:
        """Call each callback with the path that it watches."""
        for root, callback in tuple(self._entries):
            self._call(callback, root)
