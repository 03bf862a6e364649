"""The setting `sasl.scram.first.users`: users that a broker creates at startup, so that a first login is possible."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Mapping
from typing import Final

from oncelog_broker.config.declared import InvalidConfig
from oncelog_broker.config.secret import Secret
from oncelog_broker.metadata import paths
from oncelog_broker.metadata.model.payloads import encode_config
from oncelog_broker.metadata.stores.store import BadVersion, Create, MetadataStore, NodeExists, Set
from oncelog_broker.security.sasl.credentials import new_credential
from oncelog_protocol.scram import MIN_ITERATIONS, ScramMechanism

logger = logging.getLogger(__name__)

SALT_BYTES: Final = 24


def parse_first_users(secret: Secret | None) -> dict[str, Secret]:
    """Parse `name=password,...`; a password must not contain a comma. Raises InvalidConfig, whose message contains no
    part of the text, because the text has passwords.
    """
    users = {}
    for number, part in enumerate(filter(None, (secret.reveal() if secret else "").split(",")), 1):
        name, equals, password = part.strip().partition("=")
        if not (name and equals and password):
            raise InvalidConfig(f"sasl.scram.first.users: user {number}: expected name=password")
        users[name] = Secret(password)
    return users


async def make_first_users(store: MetadataStore, users: Mapping[str, Secret]) -> None:
    """Create the users that have no settings yet. In the metadata store, the node of a user may exist without settings,
    because quotas for this user and a client id are stored below it. Raises MetadataError.
    """
    names = list(users)
    found = await store.get_many([paths.user_config(name) for name in names])
    for name, node in zip(names, found, strict=True):
        if node is not None and node[0]:
            continue
        credentials = encode_config(await asyncio.to_thread(_credentials, users[name]))
        path = paths.user_config(name)
        try:
            await store.multi([Create(path, credentials) if node is None else Set(path, credentials, node[1].version)])
        except (NodeExists, BadVersion):
            continue  # nothing to do: another broker has created the user first
        logger.warning("first user created", extra={"user": name})


def _credentials(password: Secret) -> dict[str, str]:
    return {
        mechanism.mechanism_name: new_credential(
            mechanism, password.reveal(), secrets.token_bytes(SALT_BYTES), MIN_ITERATIONS
        ).format()
        for mechanism in ScramMechanism
    }
