"""The content of Kafka's node for a pattern of resource names: the ACL entries of the matching resources.

Example: /kafka-acl/Topic/orders {"version": 1, "acls": [{"principal": "User:alice", "permissionType": "Allow",
                                                  "operation": "Read", "host": "*"}]}
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

from oncelog_broker.metadata.model.payloads import MalformedPayload
from oncelog_protocol.acls import OPERATIONS, AclEntry, AclPermission

_OPERATIONS: Final = {operation.shown.upper(): operation for operation in OPERATIONS}
_PERMISSIONS: Final = {"ALLOW": AclPermission.ALLOW, "DENY": AclPermission.DENY}
VERSION: Final = 1


def encode_acls(entries: Iterable[AclEntry]) -> bytes:
    """Encode the entries in sorted order, so that equal entries result in equal bytes."""
    acls = [
        {
            "principal": entry.principal,
            "permissionType": entry.permission.shown,
            "operation": entry.operation.shown,
            "host": entry.host,
        }
        for entry in sorted(entries)
    ]
    return json.dumps({"version": VERSION, "acls": acls}, separators=(",", ":"), ensure_ascii=False).encode()


def parse_acls(data: bytes, path: str) -> frozenset[AclEntry]:
    """Parse the ACL entries in a node. Raises MalformedPayload if any entry is invalid. An invalid entry is not
    skipped, because skipping a Deny entry would grant too many rights.
    """
    try:
        document = json.loads(data)
        if document["version"] != VERSION:
            raise MalformedPayload(path, f"version {document['version']!r:.40}")
        return frozenset(
            AclEntry(
                _text(acl["principal"]),
                _text(acl["host"]),
                _OPERATIONS[_text(acl["operation"]).upper()],
                _PERMISSIONS[_text(acl["permissionType"]).upper()],
            )
            for acl in document["acls"]
        )
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        if isinstance(error, MalformedPayload):
            raise
        raise MalformedPayload(path, f"not the ACLs of a resource ({error!r:.80})") from error


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is not a string")
    return value
