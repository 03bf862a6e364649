"""The security of all listeners of a broker, updated from the cluster image and from files on disk."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial

from oncelog_broker.config import security_keys
from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.config.listeners import inter_broker_listener, listeners
from oncelog_broker.metadata.model.image import ImageView
from oncelog_broker.runtime.tasks import Tasks
from oncelog_broker.security.first_users import parse_first_users
from oncelog_broker.security.listener_security import ListenerSecurity
from oncelog_protocol.light_classes import NamedTuple


class _Users(NamedTuple):
    """The users in the cluster image, and the secret login key."""

    metadata: ImageView
    login_key: bytes


class Securities:
    """The security of each listener, by listener name."""

    def __init__(self, config: BrokerConfig, *, is_clustered: bool) -> None:
        """Raises InvalidConfig."""
        parse_first_users(config[security_keys.SCRAM_FIRST_USERS])
        self._users: _Users | None = None
        self._by_name = {
            listener.name: ListenerSecurity(
                listener,
                config,
                lambda: self._known_users().metadata.image.user_configs,
                lambda: self._known_users().login_key,
                is_inter_broker=is_clustered and listener.name == inter_broker_listener(config),
            )
            for listener in listeners(config)
        }

    def begin(self, metadata: ImageView, login_key: bytes) -> None:
        """Set the source of the users, and the secret of the cluster. Call this method before a listener serves. The
        listeners are bound, and their certificates are read, before the broker registers; but the users are known only
        after the registration.
        """
        self._users = _Users(metadata, login_key)

    def _known_users(self) -> _Users:
        assert self._users is not None, "a listener serves before the broker has joined its cluster"
        return self._users

    def __getitem__(self, listener: str) -> ListenerSecurity:
        return self._by_name[listener]

    async def follow(self, tasks: Tasks) -> None:
        """Start the tasks that refresh token keys and TLS files while the broker runs."""
        for security in self._by_name.values():
            for jwks in security.jwks:
                await jwks.read()
                tasks.supervise(f"keys of OAUTHBEARER, listener {security.name}", jwks.follow)
            if security.tls is not None:
                from oncelog_broker.security.tls.contexts import FILES_CHECK_SECONDS  # imported with `security.tls`

                check = partial(asyncio.to_thread, security.tls.check)
                tasks.every(f"TLS files, listener {security.name}", FILES_CHECK_SECONDS, check)

    def key_ages(self) -> Iterator[tuple[str, float]]:
        """Yield each listener with OAUTHBEARER keys, and the seconds since its keys were read. Must be called in the
        event loop.
        """
        now = asyncio.get_running_loop().time()
        for security in self._by_name.values():
            for jwks in security.jwks:
                yield security.name, jwks.age_seconds(now)
