"""/acls, /users and /quotas: the rights, the SCRAM users, and the limits of users and clients."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from oncelog.admin import AclBinding, QuotaEntity
from oncelog.admin.users import ScramCredentialInfo
from oncelog.errors import ErrorCode, KafkaError
from oncelog_console.changes import acls as acl_changes
from oncelog_console.changes import quotas as quota_changes
from oncelog_console.limits import MAX_ROWS
from oncelog_console.pages.page_request import admin_of, console_of, page
from oncelog_console.rendering import render


@page
async def acls(request: Request) -> Response:
    async def load() -> list[AclBinding] | None:
        try:
            return sorted(await (await admin_of(request)).acls.describe())
        except KafkaError as error:
            if error.code is ErrorCode.SECURITY_DISABLED:
                return None
            raise

    known: list[AclBinding] | None = await console_of(request).shared.get("acls", load)
    found = known or []
    search = request.query_params.get("q", "")
    matching = [acl for acl in found if search.lower() in f"{acl.pattern.name} {acl.entry.principal}".lower()]
    rows = [(acl, acl_changes.fields_of(acl)) for acl in matching[:MAX_ROWS]]
    left_out = max(0, len(matching) - MAX_ROWS)
    return render(
        request,
        "acls.html",
        rows=rows,
        count=len(found),
        left_out=left_out,
        search=search,
        are_checked=known is not None,
    )


@page
async def users(request: Request) -> Response:
    async def load() -> dict[str, list[ScramCredentialInfo]]:
        return await (await admin_of(request)).describe_user_scram_credentials()

    found: dict[str, list[ScramCredentialInfo]] = await console_of(request).shared.get("users", load)
    search = request.query_params.get("q", "")
    matching = [(name, infos) for name, infos in sorted(found.items()) if search.lower() in name.lower()]
    left_out = max(0, len(matching) - MAX_ROWS)
    return render(request, "users.html", rows=matching[:MAX_ROWS], count=len(found), left_out=left_out, search=search)


@page
async def quotas(request: Request) -> Response:
    async def load() -> dict[QuotaEntity, dict[str, float]]:
        return await (await admin_of(request)).describe_client_quotas()

    found: dict[QuotaEntity, dict[str, float]] = await console_of(request).shared.get("quotas", load)
    rows = [
        (quota_changes.shown(entity), quota_changes.fields_of(entity), sorted(values.items()))
        for entity, values in found.items()
    ]
    rows.sort(key=lambda row: row[0])
    return render(request, "quotas.html", rows=rows[:MAX_ROWS], left_out=max(0, len(rows) - MAX_ROWS))
