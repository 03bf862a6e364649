"""/transaction/abort and /transaction/fence: confirmation, and execution by a form."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from oncelog.cli.transaction_words import headline, pinned_facts
from oncelog.clock import now_ms
from oncelog.errors import KafkaError
from oncelog_console.changes.commands import oncelog
from oncelog_console.pages.page_request import (
    Form,
    admin_of,
    change,
    console_of,
    done,
    known_partition,
    number_of,
    page,
    place_of,
    text_of,
)
from oncelog_console.rendering import Refused, render


@page
async def ask_abort(request: Request) -> Response:
    where, offset = place_of(request.query_params)
    admin = await admin_of(request)
    await known_partition(admin, where)
    states = (await admin.transactions.producers([where]))[where]
    state = next((each for each in states if each.transaction_start_offset == offset), None)
    may_be = state is not None and await admin.transactions.may_be_aborted(where, offset)
    explained = (await admin.transactions.explain([where]))[where]
    pinned = explained.pinned_by if explained.pinned_by and explained.pinned_by.start_offset == offset else None
    return render(
        request,
        "abort.html",
        command=oncelog(
            console_of(request).link.bootstrap, "txns abort", f"{where.topic}:{where.partition}", start_offset=offset
        ),
        where=where,
        offset=offset,
        state=state,
        may_be=may_be,
        headline=None if pinned is None else headline(explained, pinned),
        facts=() if pinned is None else tuple(pinned_facts(explained, pinned, now_ms())),
    )


@change
async def abort(request: Request, form: Form) -> Response:
    where, offset = place_of(form)
    admin = await admin_of(request)
    await known_partition(admin, where)
    if not await admin.transactions.may_be_aborted(where, offset):
        raise Refused(
            f"the transaction at offset {offset} of {where} is its coordinator's to end: aborted here alone, it could "
            "be committed elsewhere",
            409,
        )
    state = await admin.transactions.abort(where, offset)
    text = f"Aborted the transaction of producer {state.producer_id} in {where}"
    try:
        stable = (await admin.transactions.explain([where]))[where].last_stable_offset
    except KafkaError:  # the last stable offset is unknown, but the transaction is aborted nevertheless
        return done(request, f"{text}.", "/transactions")
    return done(request, f"{text}: its last stable offset is {stable} now.", "/transactions")


@page
async def ask_fence(request: Request) -> Response:
    transactional_id = text_of(request.query_params.get("id"), "id")
    admin = await admin_of(request)
    described = (await admin.transactions.describe([transactional_id]))[transactional_id]
    command = oncelog(console_of(request).link.bootstrap, "txns fence", transactional_id)
    return render(request, "fence.html", described=described, command=command)


@change
async def fence(request: Request, form: Form) -> Response:
    transactional_id = text_of(request.query_params.get("id"), "id")
    producer_id = number_of(form.get("producer_id"), "producer_id")
    epoch = number_of(form.get("epoch"), "epoch")
    admin = await admin_of(request)
    described = (await admin.transactions.describe([transactional_id]))[transactional_id]
    if (described.producer_id, described.producer_epoch) != (producer_id, epoch):
        raise Refused("another producer has taken this transactional id since: reload the page", 409)
    await admin.transactions.fence([transactional_id])
    text = f"Took the transactional id {transactional_id!r} from its producer; its open transaction is aborted."
    return done(request, text, "/transactions")
