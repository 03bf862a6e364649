"""The routes of the REST interface: they parse paths and parameters, and build the JSON of the response."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import unquote

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from oncelog_registry import errors
from oncelog_registry.errors import RegistryError
from oncelog_registry.guard import Guard
from oncelog_registry.limits import BODY_SECONDS, MAX_BODY_BYTES, MAX_REFERENCES
from oncelog_registry.registry import Registry
from oncelog_registry.schemas import AVRO, TYPES, Reference, Schema, SubjectVersion
from oncelog_registry.state import LATEST

MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"
MAX_VERSION: Final = 2**31 - 1

Handler = Callable[[Request], Awaitable[Any]]


class Answer(Response):
    """A JSON response in the media type of the interface."""

    media_type = MEDIA_TYPE

    def render(self, content: Any) -> bytes:
        return json.dumps(content, separators=(",", ":")).encode()


def application(registry: Registry, hosts: frozenset[str] | None = None) -> Starlette:
    """Return the ASGI application. `hosts`: the host names under which clients may call the registry; None means any
    host name.
    """

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await registry.close()

    calls = Calls(registry)
    return Starlette(
        routes=[Route(path, _answering(call), methods=[method]) for method, path, call in calls.routes()],
        middleware=[Middleware(Guard, hosts=hosts), Middleware(UndecodedPaths)],
        exception_handlers={
            RegistryError: _refused,
            404: _no_path,
            405: _no_method,
        },
        lifespan=lifespan,
    )


class UndecodedPaths:
    """ASGI middleware: matches routes with the path exactly as the client has sent it. A client sends the subject
    `orders/versions` as `orders%2Fversions`. If the path were decoded before the match, a look-up of this subject would
    become a registration under the subject `orders`.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope = {**scope, "path": scope["raw_path"].decode("latin-1")}
        await self._app(scope, receive, send)


def _answering(call: Handler) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        content = await call(request)
        return content if isinstance(content, Response) else Answer(content)

    return answer


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, RegistryError)
    return Answer({"error_code": error.code, "message": error.message}, error.status)


async def _no_path(_request: Request, _error: Exception) -> Response:
    return Answer({"error_code": 404, "message": "HTTP 404 Not Found"}, 404)


async def _no_method(_request: Request, _error: Exception) -> Response:
    return Answer({"error_code": 405, "message": "HTTP 405 Method Not Allowed"}, 405)


class Calls:
    """One method for each call of the interface: it returns the response as JSON. Raises RegistryError."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def routes(self) -> list[tuple[str, str, Handler]]:
        """Return (method, path, call) of every call."""
        subject, version = "/subjects/{subject:path}", "{version}"
        return [
            ("GET", "/", self.root),
            ("GET", "/v1/metadata/id", self.metadata_id),
            ("GET", "/v1/metadata/version", self.metadata_version),
            ("GET", "/contexts", self.contexts),
            ("GET", "/schemas", self.schemas),
            ("GET", "/schemas/types", self.types),
            ("GET", "/schemas/ids/{id}", self.schema_by_id),
            ("GET", "/schemas/ids/{id}/schema", self.text_by_id),
            ("GET", "/schemas/ids/{id}/subjects", self.subjects_of_id),
            ("GET", "/schemas/ids/{id}/versions", self.versions_of_id),
            ("GET", "/subjects", self.subjects),
            ("GET", f"{subject}/versions", self.versions),
            ("POST", f"{subject}/versions", self.register),
            ("GET", f"{subject}/versions/{version}", self.version),
            ("DELETE", f"{subject}/versions/{version}", self.delete_version),
            ("GET", f"{subject}/versions/{version}/schema", self.text_of_version),
            ("GET", f"{subject}/versions/{version}/referencedby", self.referenced_by),
            ("POST", subject, self.look_up),
            ("DELETE", subject, self.delete_subject),
            ("POST", "/compatibility/subjects/{subject:path}/versions", self.compatibility),
            ("POST", "/compatibility/subjects/{subject:path}/versions/{version}", self.compatibility),
            ("GET", "/config", self.level),
            ("PUT", "/config", self.set_level),
            ("DELETE", "/config", self.remove_level),
            ("GET", "/config/{subject:path}", self.level),
            ("PUT", "/config/{subject:path}", self.set_level),
            ("DELETE", "/config/{subject:path}", self.remove_level),
            ("GET", "/mode", self.mode),
            ("PUT", "/mode", self.set_mode),
            ("GET", "/mode/{subject:path}", self.mode),
            ("PUT", "/mode/{subject:path}", self.set_mode),
            ("DELETE", "/mode/{subject:path}", self.remove_mode),
        ]

    # --- calls about the registry itself

    async def root(self, _: Request) -> Any:
        return {}

    async def metadata_id(self, _: Request) -> Any:
        return {"scope": {"path": [], "clusters": {"schema-registry-cluster": "schema-registry"}}, "id": ""}

    async def metadata_version(self, _: Request) -> Any:
        from importlib.metadata import version

        return {"version": version("oncelog"), "commitId": ""}

    async def contexts(self, _: Request) -> Any:
        return ["."]

    async def types(self, _: Request) -> Any:
        return list(TYPES)

    # --- calls for schemas by id

    async def schema_by_id(self, request: Request) -> Any:
        found = await self._registry.with_id(_id(request))
        document = found.schema.document()
        document["schema"] = await self._text(request, found)
        if _flag(request, "fetchMaxId"):
            document["maxId"] = max(each.id for each in (await self._registry.state()).all_versions(deleted=True))
        return document

    async def text_by_id(self, request: Request) -> Any:
        return _plain(await self._text(request, await self._registry.with_id(_id(request))))

    async def subjects_of_id(self, request: Request) -> Any:
        return list(dict.fromkeys(each.subject for each in await self._uses(request)))

    async def versions_of_id(self, request: Request) -> Any:
        return [{"subject": each.subject, "version": each.version} for each in await self._uses(request)]

    async def _uses(self, request: Request) -> list[SubjectVersion]:
        schema_id, state = _id(request), await self._registry.state()
        state.with_id(schema_id)
        uses = state.uses_of_id(schema_id, deleted=_flag(request, "deleted"))
        wanted = request.query_params.get("subject")
        return [each for each in uses if wanted in (None, each.subject)]

    async def schemas(self, request: Request) -> Any:
        state = await self._registry.state()
        prefix, latest_only = request.query_params.get("subjectPrefix", ""), _flag(request, "latestOnly")
        found = []
        for subject in state.subjects(prefix, deleted=_flag(request, "deleted")):
            versions = state.versions(subject, deleted=_flag(request, "deleted"))
            found += [each.document() for each in (versions[-1:] if latest_only else versions)]
        return _page(request, found)

    # --- subjects

    async def subjects(self, request: Request) -> Any:
        state = await self._registry.state()
        return _page(
            request,
            state.subjects(
                request.query_params.get("subjectPrefix", ""),
                deleted=_flag(request, "deleted"),
                only_deleted=_flag(request, "deletedOnly"),
            ),
        )

    async def versions(self, request: Request) -> Any:
        subject, state = _subject(request), await self._registry.state()
        found = state.versions(subject, deleted=_flag(request, "deleted"), only_deleted=_flag(request, "deletedOnly"))
        if not found:
            raise errors.subject_not_found(subject)
        return _page(request, [each.version for each in found])

    async def version(self, request: Request) -> Any:
        found = await self._version(request)
        document = found.document()
        document["schema"] = await self._text(request, found)
        return document

    async def text_of_version(self, request: Request) -> Any:
        return _plain(await self._text(request, await self._version(request)))

    async def referenced_by(self, request: Request) -> Any:
        found = await self._version(request)
        return (await self._registry.state()).referring_ids(found.subject, found.version)

    async def register(self, request: Request) -> Any:
        body = await _body(request)
        registered = await self._registry.register(
            _subject(request), _schema(body), _optional_int(body, "id"), _optional_int(body, "version")
        )
        return {"id": registered.id}

    async def look_up(self, request: Request) -> Any:
        schema = _schema(await _body(request))
        found = await self._registry.look_up(_subject(request), schema, deleted=_flag(request, "deleted"))
        return found.document()

    async def delete_version(self, request: Request) -> Any:
        return await self._registry.delete_version(
            _subject(request), _version(request), permanent=_flag(request, "permanent")
        )

    async def delete_subject(self, request: Request) -> Any:
        return await self._registry.delete_subject(_subject(request), permanent=_flag(request, "permanent"))

    async def _version(self, request: Request) -> SubjectVersion:
        number = _version(request)
        return (await self._registry.state()).version(_subject(request), number, deleted=_flag(request, "deleted"))

    async def _text(self, request: Request, version: SubjectVersion) -> str:
        return await self._registry.text(version.schema, request.query_params.get("format", ""))

    # --- compatibility

    async def compatibility(self, request: Request) -> Any:
        version = _version(request) if "version" in request.path_params else None
        found = await self._registry.incompatibilities(_subject(request), _schema(await _body(request)), version)
        answer: dict[str, Any] = {"is_compatible": not found}
        if _flag(request, "verbose"):
            answer["messages"] = found
        return answer

    async def level(self, request: Request) -> Any:
        subject, state = _optional_subject(request), await self._registry.state()
        level = state.level(subject)
        if level is None and subject is not None and not _flag(request, "defaultToGlobal"):
            raise errors.level_not_configured(subject)
        return {"compatibilityLevel": level or state.effective_level(subject)}

    async def set_level(self, request: Request) -> Any:
        body = await _body(request)
        for field in ("defaultMetadata", "overrideMetadata", "defaultRuleSet", "overrideRuleSet", "compatibilityGroup"):
            _refuse(body, field)
        return {"compatibility": await self._registry.set_level(_optional_subject(request), body.get("compatibility"))}

    async def remove_level(self, request: Request) -> Any:
        return {"compatibilityLevel": await self._registry.remove_level(_optional_subject(request))}

    async def mode(self, request: Request) -> Any:
        subject, state = _optional_subject(request), await self._registry.state()
        mode = state.mode(subject)
        if mode is None and subject is not None and not _flag(request, "defaultToGlobal"):
            raise errors.mode_not_configured(subject)
        return {"mode": mode or state.effective_mode(subject)}

    async def set_mode(self, request: Request) -> Any:
        mode = (await _body(request)).get("mode")
        force = _flag(request, "force")
        return {"mode": await self._registry.set_mode(_optional_subject(request), mode, force=force)}

    async def remove_mode(self, request: Request) -> Any:
        return {"mode": await self._registry.remove_mode(_subject(request))}


# --- parsing the parameters of a request


async def _body(request: Request) -> dict[str, Any]:
    """Return the JSON object in the body. Raises RegistryError 413 if the body is too long, 408 if it arrives too
    slowly, 422 if it is not a JSON object.
    """
    received = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                received += part
                if len(received) > MAX_BODY_BYTES:
                    raise RegistryError(413, f"The body is longer than {MAX_BODY_BYTES} bytes")
    except TimeoutError:
        raise RegistryError(408, f"The body was not there after {BODY_SECONDS:.0f} s") from None
    except ClientDisconnect:
        raise RegistryError(400, "The client went away") from None
    try:
        document = json.loads(received)
        json.dumps(document, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise errors.unprocessable("The body has half of a surrogate pair, which is not a character") from None
    except (ValueError, RecursionError):
        raise RegistryError(400, "The body is not a JSON document") from None
    if not isinstance(document, dict):
        raise errors.unprocessable("The body is not a JSON object")
    return document


def _schema(body: Mapping[str, Any]) -> Schema:
    text, schema_type, references = body.get("schema"), body.get("schemaType") or AVRO, body.get("references") or []
    if not isinstance(text, str):
        raise errors.invalid_schema("the field `schema` is missing, or no string")
    if not isinstance(schema_type, str):
        raise errors.invalid_schema("the field `schemaType` is not a string")
    if not isinstance(references, list) or len(references) > MAX_REFERENCES:
        raise errors.invalid_schema(f"`references` is not a list of at most {MAX_REFERENCES} schemas")
    for field in ("metadata", "ruleSet"):
        _refuse(body, field)
    return Schema(text, schema_type, tuple(_reference(each) for each in references))


def _reference(document: Any) -> Reference:
    if not isinstance(document, dict):
        raise errors.invalid_schema("a reference is an object with name, subject and version")
    name, subject, version = document.get("name"), document.get("subject"), document.get("version")
    if not isinstance(name, str) or not isinstance(subject, str) or type(version) is not int:
        raise errors.invalid_schema("a reference has a name, a subject and the number of a version")
    return Reference(name, subject, version)


def _refuse(body: Mapping[str, Any], field: str) -> None:
    """Refuse a data contract, because a client would otherwise assume that the registry enforces it; the registry does
    not support data contracts.
    """
    if body.get(field):
        raise errors.unprocessable(f"`{field}` is not supported by this registry: leave it out")


def _optional_int(body: Mapping[str, Any], field: str) -> int | None:
    value = body.get(field)
    if value is None or value in (-1, 0):
        return None
    if type(value) is not int:
        raise errors.unprocessable(f"`{field}` is not a number")
    return value


def _flag(request: Request, name: str) -> bool:
    return request.query_params.get(name, "").lower() == "true"


def _subject(request: Request) -> str:
    """Return the subject without the name of the default context, which a client may or may not send."""
    return unquote(str(request.path_params["subject"])).removeprefix(":.:")


def _optional_subject(request: Request) -> str | None:
    return _subject(request) if "subject" in request.path_params else None


def _version(request: Request) -> int | str:
    text = str(request.path_params["version"])
    if text in (LATEST, "-1"):
        return LATEST
    if not text.isascii() or not text.isdecimal() or not 0 < int(text[:11]) <= MAX_VERSION or len(text) > 10:
        raise errors.invalid_version(text)
    return int(text)


def _id(request: Request) -> int:
    text = str(request.path_params["id"])
    if not text.isascii() or not text.isdecimal() or len(text) > 10:
        raise RegistryError(404, "HTTP 404 Not Found")
    return int(text)


def _page(request: Request, found: list[Any]) -> list[Any]:
    """Return the part of the list that `offset` and `limit` select. A limit below 1 means no limit."""
    offset, limit = (_number(request, name, default) for name, default in (("offset", 0), ("limit", -1)))
    end = None if limit < 1 else max(0, offset) + limit
    return found[max(0, offset) : end]


def _number(request: Request, name: str, default: int) -> int:
    text = request.query_params.get(name, str(default))
    try:
        return int(text[:12])
    except ValueError:
        raise errors.unprocessable(f"`{name}` is not a number") from None


def _plain(text: str) -> Response:
    return PlainTextResponse(text, media_type=MEDIA_TYPE)
