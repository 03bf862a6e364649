"""Changes of the quotas of users, client ids and addresses."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final, Self

from oncelog.admin import DEFAULT, QuotaAlteration, QuotaEntity, QuotaFilter
from oncelog_console.changes.change import BadField, Change, Fields, Preview
from oncelog_console.changes.commands import oncelog
from oncelog_console.link import Link
from oncelog_protocol.quotas import QuotaKey, keys_of

PARTS: Final = ("user", "client_id", "ip")
KEYS: Final = {key.value: key for key in QuotaKey}
DEFAULT_FIELD: Final = "_default"
"""Suffix of the name of a form field that selects the default entity (the quota for all names without their own quota).
"""


def fields_of(entity: QuotaEntity) -> dict[str, str]:
    """Return the fields of a form that describes this entity."""
    fields = {}
    for part, name in zip(PARTS, entity, strict=True):
        if name is DEFAULT:
            fields[part + DEFAULT_FIELD] = "1"
        elif isinstance(name, str):
            fields[part] = name
    return fields


def shown(entity: QuotaEntity) -> str:
    """Return the entity in words."""
    told = []
    for part, name in zip(("user", "client id", "address"), entity, strict=True):
        if name is DEFAULT:
            told.append(f"each {part} without a quota of its own")
        elif name is not None:
            told.append(f"{part} {name}")
    return ", ".join(told)


def _entity(fields: Fields) -> QuotaEntity:
    """Return the entity that the fields of a form name. Raises BadField."""
    parts = []
    for part in PARTS:
        name, is_default = fields.optional(part), fields.is_set(part + DEFAULT_FIELD)
        if name is not None and is_default:
            raise BadField(f"either a name or the default is needed for {part.replace('_', ' ')}")
        parts.append(DEFAULT if is_default else name)
    entity = QuotaEntity(*parts)
    if entity == (None, None, None):
        raise BadField("a user, a client id or an address is needed")
    if entity.ip is not None and (entity.user is not None or entity.client_id is not None):
        raise BadField("an address has quotas of its own, without users or client ids")
    return entity


def _options(entity: QuotaEntity) -> dict[str, object]:
    return {name: True if name.endswith(DEFAULT_FIELD) else value for name, value in fields_of(entity).items()}


def _values(fields: Fields) -> dict[str, float]:
    """Return the quotas whose form fields are filled in, by the name of the quota. Raises BadField."""
    values = {}
    for name in KEYS:
        text = fields.optional(name)
        if text is not None:
            try:
                value = float(text)
            except ValueError:
                value = math.nan
            if not (math.isfinite(value) and value > 0):
                raise BadField(f"{name} is a number above 0, not {text[:40]!r}")
            values[name] = value
    return values


async def _current(link: Link, entity: QuotaEntity) -> Mapping[str, float]:
    found = await (await link.admin()).describe_client_quotas(QuotaFilter(*entity, is_strict=True))
    return found.get(entity, {})


@dataclass(frozen=True, slots=True)
class SetQuota(Change):
    """Sets quotas of an entity; quotas whose form fields are empty stay unchanged."""

    section: ClassVar[str] = "access"
    name_in_url: ClassVar[str] = "quota-set"
    has_form: ClassVar[bool] = True
    heading: ClassVar[str] = "Set a quota"
    verb: ClassVar[str] = "Set it"
    entity: QuotaEntity
    values: dict[str, float]

    @classmethod
    def from_fields(cls, fields: Fields) -> Self:
        entity, values = _entity(fields), _values(fields)
        if not values:
            raise BadField("a quota is needed")
        if wrong := values.keys() - {key.value for key in keys_of(entity)}:
            raise BadField(f"{shown(entity)} has no {', '.join(sorted(wrong))}")
        return cls(entity, values)

    @property
    def title(self) -> str:
        return f"Set the quota of {shown(self.entity)}?"

    def command(self, bootstrap: str) -> str:
        return oncelog(
            bootstrap, "quotas set", **_options(self.entity), **{key: f"{v:.15g}" for key, v in self.values.items()}
        )

    async def preview(self, link: Link) -> Preview:
        before = await _current(link, self.entity)
        await (await link.admin()).alter_client_quotas([self._alteration], validate_only=True)
        return Preview(
            tuple(
                (key, f"{f'{before[key]:.15g}' if key in before else 'none'} → {value:.15g}")
                for key, value in self.values.items()
            )
        )

    async def apply(self, link: Link) -> str:
        await (await link.admin()).alter_client_quotas([self._alteration])
        return f"Set the quota of {shown(self.entity)}."

    @property
    def back(self) -> tuple[str, dict[str, str]]:
        return "/quotas", {}

    @property
    def _alteration(self) -> QuotaAlteration:
        return QuotaAlteration(self.entity, dict(self.values))


@dataclass(frozen=True, slots=True)
class RemoveQuota(Change):
    """Removes all quotas of an entity."""

    section: ClassVar[str] = "access"
    name_in_url: ClassVar[str] = "quota-remove"
    heading: ClassVar[str] = "Remove quotas"
    verb: ClassVar[str] = "Remove it"
    is_dangerous: ClassVar[bool] = True
    entity: QuotaEntity

    @classmethod
    def from_fields(cls, fields: Fields) -> Self:
        return cls(_entity(fields))

    @property
    def title(self) -> str:
        return f"Remove the quotas of {shown(self.entity)}?"

    def command(self, bootstrap: str) -> str:
        return oncelog(bootstrap, "quotas remove", **_options(self.entity))

    async def preview(self, link: Link) -> Preview:
        values = await _current(link, self.entity)
        if not values:
            raise BadField("it has no quotas any more")
        facts = tuple((key, f"{value:.15g}") for key, value in sorted(values.items()))
        return Preview(facts, "The next less specific quota holds then.")

    async def apply(self, link: Link) -> str:
        changes: dict[str, float | None] = dict.fromkeys(await _current(link, self.entity))
        if changes:
            await (await link.admin()).alter_client_quotas([QuotaAlteration(self.entity, changes)])
        return f"Removed the quotas of {shown(self.entity)}."

    @property
    def back(self) -> tuple[str, dict[str, str]]:
        return "/quotas", {}
