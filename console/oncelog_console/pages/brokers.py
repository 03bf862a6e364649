"""/: brokers, out-of-sync partitions, free space of data directories."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from oncelog.admin import LogDirectory
from oncelog_console.limits import MAX_ROWS
from oncelog_console.lookups import brokers as look_at
from oncelog_console.pages.page_request import admin_of, console_of, page
from oncelog_console.rendering import render


@page
async def brokers(request: Request) -> Response:
    async def load() -> look_at.BrokersView:
        return await look_at.look(await admin_of(request))

    look: look_at.BrokersView = await console_of(request).shared.get("brokers", load)
    directories = [
        (broker, path, directory if isinstance(directory, LogDirectory) else None, directory)
        for broker, paths in sorted(look.directories.items())
        for path, directory in sorted(paths.items())
    ]
    sizes = {
        broker: sum(each.size for each in paths.values() if isinstance(each, LogDirectory))
        for broker, paths in look.directories.items()
    }
    lags: dict[tuple[str, int], list[look_at.LaggingReplica]] = {}
    for each in look.lagging:
        lags.setdefault((each.topic, each.partition), []).append(each)
    behind = {(row.topic, row.partition) for row in look.out_of_sync}
    return render(
        request,
        "brokers.html",
        look=look,
        directories=directories[:MAX_ROWS],
        sizes=sizes,
        out_of_sync=look.out_of_sync[:MAX_ROWS],
        lags=lags,
        in_sync=[each for each in look.lagging if (each.topic, each.partition) not in behind][:MAX_ROWS],
    )
