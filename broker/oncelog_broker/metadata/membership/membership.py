"""Keeps a broker registered in its cluster, and decides whether the broker may lead partitions.

The broker may lead while three conditions are true: the lease of its session is valid (`lease.py`), it is registered in
the present session, and its cluster image is newer than that registration. This is called the *gate*: while a condition
is false, the gate is shut, and the broker leads no partition. The gate is checked at every use, since the lease may
have ended while the process was paused. When the lease ends, the gate shuts, and all state is kept:

- If the same session continues, the broker reads the cluster again, and the gate opens again. As long as the session
  exists, no other process can register with this broker's id.
- If the session was lost, the broker registers again with a new broker epoch, as after a restart. `on_rejoined` ensures
  that the broker does not lead a partition whose state was written before the new registration. The gate opens when the
  cluster image contains the new registration.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, Protocol, TypeVar

from oncelog_broker.metadata.membership.endpoints import EndpointInUse
from oncelog_broker.metadata.membership.registration import BrokerIdInUse, Membership, WrongStore
from oncelog_broker.metadata.stores.store import MetadataStore, SessionState, StoreUnavailable
from oncelog_broker.runtime.clock import Clock
from oncelog_broker.runtime.host import Host

RETRY_SECONDS: Final = 0.2
"""The number of seconds between two attempts while the store is unavailable."""
DOUBT_TICK_SECONDS: Final = 0.05
"""Seconds between two checks whether this broker may lead again. The checks are needed because nothing notifies the
waiting code of a renewed lease.
"""

T = TypeVar("T")

_log = logging.getLogger(__name__)


async def patiently(ask: Callable[[], Awaitable[T]], seconds: float, clock: Clock) -> T:
    """Send a request to the store by calling `ask`, with retries for `seconds`; returns the store's response. A
    starting broker sends every request through this function, so that a broken connection does not make the startup
    fail. Raises the errors of `ask`, such as StoreUnavailable.
    """
    deadline = clock.monotonic() + seconds
    while True:
        try:
            return await ask()
        except StoreUnavailable:
            if clock.monotonic() >= deadline:
                raise
        await asyncio.sleep(RETRY_SECONDS)


class Return(Protocol):
    """Brings this broker up to date before it may lead again, either in the same session or in a new session."""

    async def on_resumed(self) -> None:
        """Wait until the cluster image contains all changes that were in the store when the session resumed."""

    async def on_rejoined(self, membership: Membership) -> None:
        """Return when the cluster image has the broker's new registration, and the broker leads no partition whose
        state is older than that registration. If this method raises an error, it is called again.
        """


class ClusterMember:
    """The membership of one broker in its cluster. Call `join` first, then `follow`."""

    def __init__(
        self,
        store: MetadataStore,
        register: Callable[[], Awaitable[Membership]],
        host: Host,
        *,
        is_strict: bool = True,
    ) -> None:
        """`register` registers the broker in the present session, and is called again if it raises StoreUnavailable. If
        `is_strict` is True, this broker must stop leading when its lease ends; if False, only when its session is lost.
        """
        self._store = store
        self._register = register
        self._clock = host.clock
        self._tasks = host.tasks
        self._is_strict = is_strict
        self._registered_in = 0
        self._has_rejoined = True
        """Whether `on_rejoined` has finished for the present registration."""
        self._is_current = False
        self.wrong_store = ""
        """How the present store differs from the store of this broker's registration, as last logged; empty if this
        broker has registered again since. An operator must restore the store or restart this broker.
        """
        self._resuming: asyncio.Task[None] | None = None
        self.membership: Membership | None = None

    @property
    def broker_epoch(self) -> int:
        """The broker epoch of the last registration; -1 before the first registration."""
        return -1 if self.membership is None else self.membership.broker_epoch

    @property
    def is_new(self) -> bool:
        """Whether no broker with this id was registered before. If True, the broker's directories cannot contain data
        of this cluster.
        """
        return self.membership is not None and self.membership.incarnation == 0

    @property
    def is_registered(self) -> bool:
        """Whether this broker is registered in the present session of the store."""
        return self.membership is not None and self._registered_in == self._store.session_id

    def may_lead(self) -> bool:
        """Whether certainly no other process has registered with this broker's id."""
        return self._is_current and (not self._is_strict or self._clock.uptime() < self._store.lease_until)

    async def is_back(self, seconds: float) -> bool:
        """Wait up to `seconds` until `may_lead` is True; returns the last value of `may_lead`. The wait is needed
        because on a busy computer the lease may end for a moment.
        """
        deadline = self._clock.monotonic() + seconds
        while not self.may_lead() and self._clock.monotonic() < deadline:  # noqa: ASYNC110 (a lease tells nobody)
            await asyncio.sleep(DOUBT_TICK_SECONDS)
        return self.may_lead()

    async def join(self) -> Membership:
        """Register for the first time, with retries until a session timeout has passed. Raises BrokerIdInUse,
        StoreUnavailable.
        """
        return await self.patiently(self._join)

    async def patiently(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Send a request to the store by calling `ask`, with retries until a session timeout has passed; returns the
        store's response. Raises the errors of `ask`, such as StoreUnavailable.
        """
        return await patiently(ask, self._store.session_timeout, self._clock)

    async def _join(self) -> Membership:
        session = self._store.session_id
        membership = await self._register()
        self.membership, self._registered_in = membership, session
        return membership

    def follow(self, way_back: Return) -> None:
        """Allow this broker to lead, after the broker has read the cluster, and watch the session from now on.

        `way_back` is passed here and not to the constructor, because `way_back` uses the replicas, which are created
        with the broker epoch of the first registration.
        """
        self._is_current = True
        self._store.watch_session(partial(self._on_session, way_back))
        if self._store.session is not SessionState.CONNECTED or self._registered_in != self._store.session_id:
            self._on_session(way_back, self._store.session)

    def _on_session(self, way_back: Return, state: SessionState) -> None:
        if self._resuming is not None:
            self._resuming.cancel()
            self._resuming = None
        is_same = self._registered_in == self._store.session_id
        if not self._is_strict and state is not SessionState.LOST and is_same and self._is_current:
            return
        self._is_current = False
        if state is SessionState.CONNECTED:
            self._resuming = self._tasks.supervise("resume in the cluster", partial(self._resume, way_back))

    async def _resume(self, way_back: Return) -> None:
        """Allow this broker to lead again after its lease or session was lost; failed attempts are repeated. The next
        change of the session cancels this method.
        """
        while True:
            try:
                if self._registered_in != self._store.session_id:
                    self._has_rejoined = False
                    await self._join()
                if not self._has_rejoined:
                    await self._rejoin(way_back)
                else:
                    await way_back.on_resumed()
            except WrongStore as error:
                if str(error) != self.wrong_store:
                    _log.error("this broker serves no requests until its metadata store is back: %s", error)
                    self.wrong_store = str(error)
            except StoreUnavailable as error:
                _log.info("this broker is not registered again yet: %s", error)
            except (BrokerIdInUse, EndpointInUse) as error:
                _log.error("registering again failed and is retried: %s", error)
            except Exception:
                _log.exception("registering again failed and is retried")
            else:
                self._is_current = self._store.session is SessionState.CONNECTED
                self.wrong_store = ""
                return
            await asyncio.sleep(RETRY_SECONDS)

    async def _rejoin(self, way_back: Return) -> None:
        membership = self.membership
        assert membership is not None
        await way_back.on_rejoined(membership)
        self._has_rejoined = True
        _log.warning("registered again", extra={"broker_epoch": membership.broker_epoch})
