"""The client of a schema registry: the REST interface of the Confluent registry, asynchronous and cached.

The meaning of a schema id never changes, so the most recently used schemas are cached without expiry; the latest
version of a subject is cached for a minute.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable
from typing import Any, Final
from urllib.parse import quote

from oncelog.lifecycle import Lifecycle
from oncelog.serialization.errors import RegistryUnavailable, SerializationError
from oncelog.serialization.registry_http import RegistryHttp
from oncelog.serialization.schemas import Reference, RegisteredSchema, Schema, registered_schema_of, schema_of
from oncelog.serialization.shared_cache import SharedCache

LATEST: Final = "latest"
SERIALIZED: Final = "serialized"
"""The value of the query parameter `format` that makes a registry return a Protobuf schema as a serialized descriptor.
"""
MAX_CACHED: Final = 1_000
"""Maximum size of each of the three caches: schemas by id, ids by schema, and versions by number."""
LATEST_SECONDS: Final = 60.0
"""Seconds for which a cached version counts as the latest version of a subject."""
MISSING_SECONDS: Final = 5.0
"""Seconds for which an unknown id is not requested again."""
TIMEOUT_SECONDS: Final = 30.0
MAX_REFERENCES: Final = 100
"""Maximum number of schemas that one schema may refer to, directly and indirectly."""


class SchemaRegistry(Lifecycle):
    """A schema registry at one or several URLs; requests go to any URL that responds.

        async with SchemaRegistry("http://127.0.0.1:8081") as registry:
            serializer = AvroSerializer(registry, schema)

    `auth` is a user and a password, `token` a bearer token or a function that returns one. `timeout_s` bounds each
    request with its retries. A SchemaRegistry may be used by all tasks of one event loop.
    """

    def __init__(
        self,
        urls: str | Iterable[str],
        *,
        auth: tuple[str, str] | None = None,
        token: str | Callable[[], str] | None = None,
        ssl_context: ssl.SSLContext | None = None,
        timeout_s: float = TIMEOUT_SECONDS,
        latest_ttl_s: float = LATEST_SECONDS,
    ) -> None:
        """Raises ConfigError for an invalid URL."""
        self._http = RegistryHttp(urls, auth=auth, token=token, ssl_context=ssl_context, timeout_s=timeout_s)
        self._by_id: SharedCache[tuple[int, str], Schema] = SharedCache(MAX_CACHED, failure_ttl_s=MISSING_SECONDS)
        self._ids: SharedCache[tuple[str, Schema, bool, bool], int] = SharedCache(MAX_CACHED)
        self._versions: SharedCache[tuple[str, int, str], RegisteredSchema] = SharedCache(MAX_CACHED)
        self._latest: SharedCache[tuple[str, str], RegisteredSchema] = SharedCache(MAX_CACHED, ttl_s=latest_ttl_s)

    async def start(self) -> None:
        """Do nothing, because requests are sent only when a schema is needed."""

    async def close(self) -> None:
        """Close the connections. Requests that are waiting raise RegistryUnavailable."""
        for cache in (self._by_id, self._ids, self._versions, self._latest):
            await cache.close()
        await self._http.close()

    async def schema(self, schema_id: int, form: str = "") -> Schema:
        """Return the schema with an id. `form` SERIALIZED requests a Protobuf schema as a descriptor. Raises
        SchemaNotFound, RegistryUnavailable."""

        async def load() -> Schema:
            return schema_of(await self._http.ask("GET", f"/schemas/ids/{schema_id}{_query(form)}"))

        return await self._by_id.get((schema_id, form), load)

    async def version(self, subject: str, version: int | str = LATEST, form: str = "") -> RegisteredSchema:
        """Return a version of a subject, by default the latest. `form` SERIALIZED requests a Protobuf schema as a
        descriptor.
        Raises SchemaNotFound, RegistryUnavailable."""
        path = f"/subjects/{_quoted(subject)}/versions/{version}{_query(form)}"

        async def load() -> RegisteredSchema:
            return registered_schema_of(await self._http.ask("GET", path))

        if isinstance(version, int):
            return await self._versions.get((subject, version, form), load)
        return await self._latest.get((subject, form), load)

    async def register(self, subject: str, schema: Schema, *, normalize: bool = False) -> int:
        """Register a schema under a subject, and return its id. Registering the same schema again changes nothing.

        Raises RegistryRefused (for example with status 409 for a schema that earlier readers or writers cannot use) and
        RegistryUnavailable.
        """
        path = f"/subjects/{_quoted(subject)}/versions{'?normalize=true' if normalize else ''}"

        async def load() -> int:
            return _id_of(await self._http.ask("POST", path, schema.document()))

        return await self._ids.get((subject, schema, normalize, True), load)

    async def registered_id(self, subject: str, schema: Schema, *, normalize: bool = False) -> int:
        """Return the id of a schema that is registered under a subject. Raises SchemaNotFound, RegistryUnavailable."""
        path = f"/subjects/{_quoted(subject)}{'?normalize=true' if normalize else ''}"

        async def load() -> int:
            return _id_of(await self._http.ask("POST", path, schema.document()))

        return await self._ids.get((subject, schema, normalize, False), load)

    async def registered_version(self, subject: str, schema: Schema, *, normalize: bool = False) -> RegisteredSchema:
        """Return the version of a subject that has this schema; this call does not use the cache. Raises the errors of
        `registered_id`.
        """
        path = f"/subjects/{_quoted(subject)}{'?normalize=true' if normalize else ''}"
        return registered_schema_of(await self._http.ask("POST", path, schema.document()))

    async def subjects(self) -> list[str]:
        """Return the names of all subjects; this call does not use the cache. Raises RegistryUnavailable."""
        answer = await self._http.ask("GET", "/subjects")
        if not isinstance(answer, list):
            raise RegistryUnavailable("the answer is not a list of subjects, as a schema registry gives it")
        return [str(name) for name in answer]

    async def referred(self, schema: Schema, form: str = "") -> dict[str, Schema]:
        """Return all schemas that a schema refers to, directly and indirectly, as a mapping by the names in its
        references. Each schema comes after the schemas to which it refers.

        Raises SchemaNotFound, RegistryUnavailable, and SerializationError for more than MAX_REFERENCES schemas or two
        schemas with one name.
        """
        found: dict[str, Schema] = {}
        await self._refer(schema.references, form, found, {})
        return found

    async def _refer(
        self,
        references: Iterable[Reference],
        form: str,
        found: dict[str, Schema],
        places: dict[str, tuple[str, int]],
    ) -> None:
        for reference in references:
            known = places.get(reference.name)
            if known not in (None, (reference.subject, reference.version)):
                raise SerializationError(f"two schemas are referred to as {reference.name!r:.100}")
            if known is not None:
                continue
            if len(places) >= MAX_REFERENCES:
                raise SerializationError(f"a schema refers to more than {MAX_REFERENCES} others")
            places[reference.name] = reference.subject, reference.version
            schema = (await self.version(reference.subject, reference.version, form)).schema
            await self._refer(schema.references, form, found, places)
            found[reference.name] = schema


def _quoted(subject: str) -> str:
    return quote(subject, safe="")


def _query(form: str) -> str:
    return f"?format={form}" if form else ""


def _id_of(answer: Any) -> int:
    match answer:
        case {"id": int(schema_id)}:
            return schema_id
    raise RegistryUnavailable("the answer has no id of a schema, as a schema registry gives it")
