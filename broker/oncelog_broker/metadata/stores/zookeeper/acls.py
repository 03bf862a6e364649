"""The ACLs of the nodes that this broker creates, according to `zookeeper.set.acl`.

As in Kafka's `ZkData.defaultAcls`, the broker's identity may do everything, and others may read, except nodes with
secrets, which only the broker's identity may read. Creating or deleting a node needs write access to its parent, so the
chroot is protected, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from kazoo.protocol.serialization import int_struct, write_string
from kazoo.security import ANYONE_ID_UNSAFE, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE, Permissions

from oncelog_broker.metadata import paths

SECRET: Final = (paths.USER_CONFIGS, paths.BROKER_CONFIGS, paths.SECRETS)
"""Paths of nodes with secrets; all nodes below these paths are secret, too. The secrets are SCRAM credentials, broker
settings (some are passwords), and secrets of the cluster.
"""
OTHERS_CHANGE: Final = Permissions.WRITE | Permissions.CREATE | Permissions.DELETE | Permissions.ADMIN


def entries(path: str, *, is_protected: bool) -> list[Any]:
    """Return kazoo's ACL for the node at `path`, without the chroot."""
    if not is_protected:
        return list(OPEN_ACL_UNSAFE)
    return [*CREATOR_ALL_ACL, *([] if is_secret(path) else READ_ACL_UNSAFE)]


def is_secret(path: str) -> bool:
    return any(path == root or path.startswith(root + "/") for root in SECRET)


def is_open(path: str, acl: Sequence[Any]) -> bool:
    """Whether the present ACL of this node grants other clients more rights than the configured ACL."""
    forbidden = Permissions.ALL if is_secret(path) else OTHERS_CHANGE
    return any(entry.id == ANYONE_ID_UNSAFE and entry.perms & forbidden for entry in acl)


def packed(acl: Sequence[Any]) -> bytes:
    """Encode an ACL for a request."""
    found = [int_struct.pack(each.perms) + write_string(each.id.scheme) + write_string(each.id.id) for each in acl]
    return bytes(int_struct.pack(len(found)) + b"".join(found))


OPEN: Final = packed(OPEN_ACL_UNSAFE)
PROTECTED: Final = packed(entries("/", is_protected=True))
PROTECTED_SECRET: Final = packed(entries(paths.USER_CONFIGS, is_protected=True))


def packed_for(path: str, *, is_protected: bool) -> bytes:
    """Return the encoded ACL for the node at `path` (see `entries`)."""
    if not is_protected:
        return OPEN
    return PROTECTED_SECRET if is_secret(path) else PROTECTED
