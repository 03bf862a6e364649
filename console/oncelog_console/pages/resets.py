"""/group/reset: the plan of an offset reset and, by a form, its execution.

The console executes exactly the plan that the user has seen, because the form contains this plan, with the group's
positions at the time of the plan. The group id is in the URL, because form fields do not preserve line ends.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from oncelog import TopicPartition
from oncelog.cli.offsets import parse_position
from oncelog.cli.reset_plan import from_csv, to_csv
from oncelog.clock import now_ms
from oncelog_console.changes.commands import oncelog
from oncelog_console.limits import MAX_ROWS
from oncelog_console.lookups import groups as look_at
from oncelog_console.pages.page_request import Form, admin_of, change, console_of, done, page, text_of
from oncelog_console.rendering import Refused, render
from oncelog_console.visible_text import plural

MAX_SHIFT = 2**53


@page
async def ask_reset(request: Request) -> Response:
    given = request.query_params
    group_id = text_of(given.get("id"), "id")
    topic = given.get("topic") or None
    to, shift = given.get("to", "").strip(), given.get("shift", "").strip()
    if bool(to) == bool(shift):
        raise Refused("either a position is needed, or by how many records to shift")
    try:
        position = parse_position(to, now_ms()) if to else None
        by = int(shift) if shift else 0
    except ValueError as error:
        raise Refused(str(error)) from error
    if abs(by) > MAX_SHIFT:
        raise Refused(f"a shift is {MAX_SHIFT} records at most")
    admin = await admin_of(request)
    look = await look_at.look(admin, group_id) if topic is None else None
    committed, plan = await look_at.plan(admin, group_id, topic, position, by)
    if len(plan) > MAX_ROWS:
        raise Refused(f"{len(plan)} partitions are too many here: oncelog groups reset does it")
    if not plan:
        raise Refused("there is nothing to move: the group has committed nothing there")
    command = oncelog(
        console_of(request).link.bootstrap, "groups reset", group_id,
        topic=topic, to=to or None, shift_by=by or None, execute=True,
    )  # fmt: skip
    before = {where: committed[where] for where in plan if where in committed}
    return render(
        request,
        "reset.html",
        group_id=group_id,
        command=command,
        members=0 if look is None else len(look.group.members),
        rows=[(where, committed.get(where), offset) for where, offset in sorted(plan.items())],
        plan=to_csv(plan),
        before=to_csv(before),
    )


@change
async def reset(request: Request, form: Form) -> Response:
    group_id = text_of(request.query_params.get("id"), "id")
    plan, before = _positions(form, "plan"), _positions(form, "before")
    if not plan:
        raise Refused("no offset to move")
    admin = await admin_of(request)
    now = await look_at.offsets_of(admin, group_id)
    if {where: now[where] for where in plan if where in now} != before:
        raise Refused("the group has moved since this was shown: look again", 409)
    if not await look_at.within_bounds(admin, plan):
        raise Refused("a partition no longer has that offset: reload the page", 409)
    await admin.groups.alter_offsets(group_id, plan)
    return done(request, f"Moved {group_id!r} in {plural(len(plan), 'partition')}.", "/group", id=group_id)


def _positions(form: Form, name: str) -> dict[TopicPartition, int]:
    try:
        positions = from_csv(text_of(form.get(name), name).splitlines())
    except ValueError as error:
        raise Refused(f"{name}: {error}") from error
    if len(positions) > MAX_ROWS:
        raise Refused(f"{name}: {len(positions)} partitions are too many")
    return positions
