"""All clusters of the console, each with its path prefix, and the sessions of users who have logged in."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from oncelog.serialization import SchemaRegistry
from oncelog_console.clusters import Cluster, Login
from oncelog_console.console import Capacity, Console
from oncelog_console.limits import REGISTRY_SECONDS, SWEEP_SECONDS
from oncelog_console.link import Link
from oncelog_console.login.oidc import OidcLogin, Provider
from oncelog_console.login.sessions import Session, Sessions
from oncelog_console.lookups.connect import Connect
from oncelog_console.lookups.query_history import QueryHistories
from oncelog_console.values.reader import ValueReader
from oncelog_console.values.workers import Workers


@dataclass(slots=True)
class Place:
    """A cluster, and the state that all its users share. `prefix`: the prefix of the paths of its pages. `open`: the
    state that all visitors share, if the cluster has no login; otherwise None.
    """

    cluster: Cluster
    prefix: str
    registry: SchemaRegistry | None
    values: ValueReader
    queries: QueryHistories
    connect: Mapping[str, Connect]
    open: Console | None = None
    _sampling: asyncio.Task[None] | None = None

    def begin(self) -> None:
        self._sampling = asyncio.create_task(self.queries.run())

    async def close(self) -> None:
        if self._sampling is not None:
            self._sampling.cancel()
            await asyncio.gather(self._sampling, return_exceptions=True)
        if self.open is not None:
            await self.open.close()
        for connect in self.connect.values():
            await connect.close()
        if self.registry is not None:
            await self.registry.close()


@dataclass(slots=True)
class Site:
    """The clusters and sessions of one application. `oidc`: the identity provider of clusters with login "oidc".
    `is_secure`: whether browsers reach the console by https.
    """

    places: tuple[Place, ...]
    workers: Workers
    capacity: Capacity
    sessions: Sessions
    oidc: Provider | None = None
    is_secure: bool = False
    _sweeping: asyncio.Task[None] | None = field(default=None)

    @property
    def has_several(self) -> bool:
        return len(self.places) > 1

    @property
    def takes_forms(self) -> bool:
        """Whether any page has a form that makes a change or a login."""
        return any(place.cluster.allows_changes or place.cluster.login is not Login.NONE for place in self.places)

    def begin(self) -> None:
        """Start the background tasks."""
        for place in self.places:
            place.begin()
            if place.open is not None:
                place.open.begin()
        self._sweeping = asyncio.create_task(self._sweep())

    async def close(self) -> None:
        """End all sessions and the background tasks."""
        if self._sweeping is not None:
            self._sweeping.cancel()
            await asyncio.gather(self._sweeping, return_exceptions=True)
        await self.sessions.close()
        for place in self.places:
            await place.close()
        await self.workers.close()

    async def console_for(self, place: Place, session: Session | None) -> Console | None:
        """Return the console of this visitor; None means that a login is required."""
        if place.open is not None:
            return place.open
        if session is None:
            return None
        if place.cluster.login is not Login.OIDC:
            return session.consoles.get(place.cluster.name)
        login = session.oidc
        if login is None or not await login.is_valid() or session.oidc is not login:
            return None  # the session may have ended while its token was replaced
        console = session.consoles.get(place.cluster.name)
        if console is None:
            console = self.open_console(place, self._link_of(place, login), login.user)
            session.consoles[place.cluster.name] = console
        return console

    def open_console(self, place: Place, link: Link, user: str | None) -> Console:
        """Create and start a console (the state of a cluster) for one user; return it."""
        console = Console(place.cluster, link, place.values, place.queries, self.capacity, user)
        console.begin()
        return console

    def _link_of(self, place: Place, oidc: OidcLogin) -> Link:
        settings = {**place.cluster.settings, "sasl_oauth_token_provider": oidc.token}
        return Link(place.cluster.bootstrap, settings)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            await self.sessions.sweep()


def site_of(clusters: Iterable[Cluster], oidc: Provider | None = None, *, is_secure: bool = False) -> Site:
    """Return the site of these clusters. A single cluster has its pages at the root path. Raises ConfigError or
    ValueError.
    """
    listed = list(clusters)
    workers, capacity = Workers(), Capacity()
    places = []
    for cluster in listed:
        cluster.check()
        registry = (
            None if cluster.registry_at is None else SchemaRegistry(cluster.registry_at, timeout_s=REGISTRY_SECONDS)
        )
        place = Place(
            cluster,
            "" if len(listed) == 1 else f"/c/{cluster.name}",
            registry,
            ValueReader(workers, registry, cluster.schema_files),
            QueryHistories(cluster.queries_at),
            {name: Connect(url) for name, url in cluster.connect_at.items()},
        )
        if cluster.login is Login.NONE:
            link = Link(cluster.bootstrap, cluster.settings)
            link.new_admin()  # report an invalid setting now, and not at the first request
            place.open = Console(cluster, link, place.values, place.queries, capacity)
        elif cluster.login is Login.OIDC and oidc is None:
            raise ValueError(f"{cluster.name}: login=oidc needs an identity provider: [oidc] in the file of --config")
        places.append(place)
    return Site(tuple(places), workers, capacity, Sessions(), oidc, is_secure)
