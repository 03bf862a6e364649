"""Topics for tests: each test has its own topic, so that no test must clean up, and all tests may run in parallel."""

from __future__ import annotations

import asyncio
import re
import threading
import uuid
from collections.abc import Callable, Coroutine, Mapping
from difflib import get_close_matches
from typing import Any, Final, TypeVar

__tracebackhide__ = True  # hides this module in the traceback of a failed test

T = TypeVar("T")

NAME_CHARACTERS: Final = 100
"""Limit on the characters of the test's name in a topic name; Kafka allows 249 in total."""


def topic_name(test: str) -> str:
    """Return an unused topic name that contains the test's name."""
    readable = re.sub(r"[^a-zA-Z0-9_-]+", "-", test).strip("-")[:NAME_CHARACTERS]
    return f"{readable or 'test'}-{uuid.uuid4().hex[:8]}"


def wanted_topic(*positional: Any, **named: Any) -> tuple[int, Mapping[str, str] | None]:
    """Return the number of partitions and the settings from a test's mark for its topic. Raises TypeError for invalid
    arguments.
    """
    taken = ("partitions", "configs")
    if len(positional) > len(taken):
        raise TypeError(f"takes {' and '.join(taken)}, not {len(positional)} values")
    found: dict[str, Any] = dict(zip(taken, positional, strict=False))
    for name, value in named.items():
        if name not in taken:
            near = get_close_matches(name, taken, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"the arguments are {' and '.join(taken)}"
            raise TypeError(f"unknown argument {name!r}: {hint}")
        if name in found:
            raise TypeError(f"{name} is given twice")
        found[name] = value
    partitions, configs = found.get("partitions", 1), found.get("configs")
    if not isinstance(partitions, int) or isinstance(partitions, bool) or partitions < 1:
        raise TypeError(f"partitions={partitions!r}: must be a number from 1")
    if configs is not None and not isinstance(configs, Mapping):
        raise TypeError(f"configs={configs!r}: must be a dict of Kafka's keys")
    return partitions, configs


def run(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine in a new thread, because the test's thread may run an event loop. Returns the result of the
    coroutine.
    """
    results: list[T] = []
    errors: list[BaseException] = []

    def work_alone() -> None:
        try:
            results.append(asyncio.run(work()))
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work_alone, name="oncelog")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def create_topic(
    bootstrap_servers: str, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None
) -> None:
    """Create a topic. Raises TopicAlreadyExists, InvalidTopic and other KafkaErrors."""

    async def create() -> None:
        from oncelog.admin import Admin, NewTopic

        async with Admin(bootstrap_servers) as admin:
            await admin.create_topics([NewTopic(name, num_partitions=partitions, configs=dict(configs or {}))])

    run(create)
