"""Code that all pages share: limits on concurrency and time, parameters, and error pages.

A page that changes the cluster consists of a form, with the console's token and few fields, and a handler of this form.
The fields must arrive within a short time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import wraps
from typing import Final, TypeVar
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from oncelog import TopicPartition
from oncelog.admin import Admin
from oncelog.cluster import Partition, Topic
from oncelog.errors import KafkaError
from oncelog_console.console import Console
from oncelog_console.limits import FORM_SECONDS, MAX_FORM_BYTES, MAX_FORM_FIELDS, PAGE_SECONDS
from oncelog_console.rendering import Refused, error_page
from oncelog_console.urls import url

T = TypeVar("T")

Handler = Callable[[Request], Awaitable[Response]]
Form = dict[str, str]
FORM_TYPE: Final = "application/x-www-form-urlencoded"
MAX_PARTITION: Final = 2**31 - 1
MAX_OFFSET: Final = 2**63 - 1


def page(handler: Handler) -> Handler:
    """Wrap a handler: limit concurrency and time, and turn errors into pages."""

    @wraps(handler)
    async def answered(request: Request) -> Response:
        try:
            async with asyncio.timeout(PAGE_SECONDS), console_of(request).capacity.pages:
                return await handler(request)
        except (KafkaError, Refused, TimeoutError) as error:
            return error_page(request, error)

    return answered


def change(handler: Callable[[Request, Form], Awaitable[Response]]) -> Handler:
    """Wrap a handler of a form that makes a change: limit concurrency and time, and turn errors into pages. The guard
    has already checked the origin of the form.
    """

    @page
    @wraps(handler)
    async def answered(request: Request) -> Response:
        console = console_of(request)
        if not console.allows_changes:
            raise Refused("nothing can be changed here: oncelog console was started without --allow-changes", 403)
        form = await form_of(request)
        if not console.token.is_right(form.get("token", "")):
            raise Refused("this form is of an earlier start of the console: load its page again", 403)
        try:
            return await handler(request, form)
        finally:  # drop shared values also after an error, because a failed change may have taken effect
            console.shared.forget()

    return answered


async def form_of(request: Request) -> Form:
    """Return the fields of a form. Raises Refused."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM_TYPE:
        raise Refused("a form is needed", 415)
    body = b""
    try:
        async with asyncio.timeout(FORM_SECONDS):
            async for part in request.stream():
                body += part
                if len(body) > MAX_FORM_BYTES:
                    raise Refused(f"a form has {MAX_FORM_BYTES} bytes at most", 413)
    except TimeoutError:
        raise Refused("the form did not come in time", 408) from None
    try:
        pairs = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=MAX_FORM_FIELDS, errors="strict")
    except ValueError:
        raise Refused("this is not a form of ours") from None
    if len(dict(pairs)) != len(pairs):
        raise Refused("a field of a form must occur once")
    return dict(pairs)


def console_of(request: Request) -> Console:
    console: Console = request.scope["console"]
    return console


async def admin_of(request: Request) -> Admin:
    """Return the shared admin client; raises KafkaError if no broker can be reached."""
    return await console_of(request).link.admin()


def done(request: Request, text: str, path: str, **query: object) -> Response:
    """Redirect to a page that shows the result of a change."""
    return RedirectResponse(url(path, **query, notice=console_of(request).notices.add(text)), 303)


# --- parameters


def text_of(given: str | None, name: str) -> str:
    """Return the parameter's text; raises Refused if the parameter is missing."""
    if given is None:
        raise Refused(f"the address does not contain {name}")
    return given


def number_of(given: str | None, name: str, most: int = MAX_OFFSET) -> int:
    """Return the parameter's number; raises Refused for anything but a number from 0 to `most`."""
    text = text_of(given, name)
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and int(text) <= most):
        raise Refused(f"{name} is a number from 0 to {most}, not {text[:40]!r}")
    return int(text)


def partition_of(given: Mapping[str, str]) -> TopicPartition:
    """Return the partition that the request's parameters name. Raises Refused."""
    topic = text_of(given.get("topic"), "topic")
    return TopicPartition(topic, number_of(given.get("partition"), "partition", MAX_PARTITION))


def place_of(given: Mapping[str, str]) -> tuple[TopicPartition, int]:
    """Return the partition and the offset that the request's parameters name. Raises Refused."""
    return partition_of(given), number_of(given.get("offset"), "offset")


async def known_partition(admin: Admin, where: TopicPartition) -> Partition:
    """Return the partition; raises Refused if the topic does not have the partition, and KafkaError if the topic cannot
    be described.
    """
    return partition_in((await admin.describe_topics([where.topic]))[where.topic], where.partition)


def partition_in(topic: Topic, index: int) -> Partition:
    """Return the partition of a topic; raises Refused for a partition that the topic does not have."""
    if index not in topic.partitions:
        raise Refused(f"{topic.name} has the partitions 0 to {len(topic.partitions) - 1}, not {index}", 404)
    return topic.partitions[index]
