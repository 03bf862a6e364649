"""Convert quota entities between the domain type and their form in requests and responses: a list of parts, each with a
type and a name. A client may have sent any string as type or name.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final, Protocol

from oncelog_broker.metadata.model.quotas import MAX_NAME_CHARS
from oncelog_broker.runtime.addresses import plain_address
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.quotas import DEFAULT, FRACTIONS, Name, QuotaEntity, QuotaKey, keys_of

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
TYPES: Final = (USER, CLIENT_ID, IP)
ANSWERED: Final = (CLIENT_ID, USER, IP)
MAX_WHOLE_NUMBERS: Final = {QuotaKey.CONNECTION_CREATION_RATE: 2**31 - 1}
MAX_WHOLE_NUMBER: Final = 2**63 - 1


class Part(Protocol):
    """One part of a quota entity: a type (user, client id, address) and a name."""

    entity_type: str
    entity_name: str | None


def entity_of(parts: Iterable[Part]) -> QuotaEntity:
    """Return the quota entity that consists of these parts. Raises KafkaError INVALID_REQUEST if there is no such
    entity, for example because a type is unknown or repeated."""
    names: dict[str, Name] = {}
    for part in parts:
        kind, name = part.entity_type, part.entity_name
        if kind in names:
            raise _invalid(f"Invalid client quota entity, duplicate entity entry {kind}")
        if kind not in TYPES:
            raise _invalid(f"Unhandled client quota entity type: {kind:.40}")
        if name is not None and not 0 < len(name) <= MAX_NAME_CHARS:
            raise _invalid(f"{kind}: a name has from 1 to {MAX_NAME_CHARS} characters")
        names[kind] = DEFAULT if name is None else name
    if not names:
        raise _invalid("Invalid empty client quota entity")
    if IP in names and len(names) > 1:
        raise _invalid("Invalid quota entity combination, IP entity should not be combined with User or ClientId")
    ip = names.get(IP)
    return QuotaEntity(names.get(USER), names.get(CLIENT_ID), _address(ip) if isinstance(ip, str) else ip)


def _address(text: str) -> str:
    """Return the normalized form of an address, for comparison. Raises KafkaError INVALID_REQUEST for a text that is
    not an IP address; host names are not resolved.
    """
    address = plain_address(text)
    if address is None:
        raise _invalid(f"{text!r:.60} is not a valid IP address.")
    return address


def parts_of(entity: QuotaEntity) -> list[tuple[str, str | None]]:
    """Return the types and names of an entity as a response has them; the name None means the default."""
    named = zip(TYPES, entity, strict=True)
    return in_order((kind, name if isinstance(name, str) else None) for kind, name in named if name is not None)


def in_order(parts: Iterable[tuple[str, str | None]]) -> list[tuple[str, str | None]]:
    """Sort types and names into the order of Kafka's response."""
    return sorted(parts, key=lambda part: ANSWERED.index(part[0]) if part[0] in ANSWERED else len(ANSWERED))


def checked_value(entity: QuotaEntity, key: str, value: float) -> str:
    """Return the quota's value as the string that the store keeps. Raises KafkaError INVALID_REQUEST for an unknown key
    or an invalid value.
    """
    known = next((each for each in keys_of(entity) if each == key), None)
    if known is None:
        raise _invalid(f"Invalid configuration key {key:.60}")
    if not value > 0 or not math.isfinite(value):
        raise _invalid(f"Quota {known} must be greater than 0, and finite")
    if known in FRACTIONS:
        return repr(float(value))
    if value > MAX_WHOLE_NUMBERS.get(known, MAX_WHOLE_NUMBER):
        raise _invalid(f"Proposed value for {known} is too large.")
    if abs(value % 1.0) > 1e-6:
        raise _invalid(f"{known} cannot be a fractional value.")
    return str(min(int(value), MAX_WHOLE_NUMBER))


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
