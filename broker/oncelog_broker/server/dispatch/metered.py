"""The request context of a client that has a quota: counts the resources that the request uses.

Processor time is the CPU time of the event loop's thread, measured around each piece of work for the request: the
handler, the encoding of the response, slices of long work, and steps of a task. Processor time is not measured if the
client has no quota on it.
"""

from __future__ import annotations

import types
from collections.abc import Coroutine, Generator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from oncelog_broker.runtime.answers import Answer
from oncelog_broker.runtime.steps import Steps
from oncelog_broker.security.authorizer.rules import Rule
from oncelog_broker.security.quotas.client_limits import ClientLimits
from oncelog_broker.security.quotas.limits import Limit
from oncelog_broker.server.request.context import AnyContext
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.quotas import QuotaKey

if TYPE_CHECKING:
    import asyncio

R = TypeVar("R")

STRICT_SINCE: Final = {ApiKey.CREATE_TOPICS: 6, ApiKey.DELETE_TOPICS: 5, ApiKey.CREATE_PARTITIONS: 3}
"""The first version of each API whose clients understand THROTTLING_QUOTA_EXCEEDED; clients of older versions are
throttled after the request (KIP-599).
"""


class QuotaUse(Protocol):
    """Interface for counting the usage of quotas, which `throttling` implements."""

    def wait(self, key: QuotaKey, limit: Limit) -> float: ...

    def use(self, key: QuotaKey, limit: Limit, amount: float) -> float: ...

    def count_processor(self, context: MeteredContext) -> float: ...


class MeteredContext(AnyContext):
    """Wraps a request context, counts usage, and can be used in place of the wrapped context (`AnyContext`)."""

    __slots__ = (
        "_began",
        "_throttling",
        "is_exempt",
        "is_settled",
        "limits",
        "request_bytes",
        "spent",
        "waits_to_mutate",
    )

    def __init__(self, *args: Any, throttling: QuotaUse, limits: ClientLimits, request_bytes: int) -> None:
        super().__init__(*args)
        self._throttling = throttling
        self.limits = limits
        self.request_bytes = request_bytes
        self.is_exempt = False
        """Whether the sender is a broker on an inter-broker connection."""
        self.is_settled = False
        """Whether the response was sent. Resources that the request uses after its response count toward the client's
        next request."""
        self.spent = 0.0
        """The seconds of processor time that were used, but are not yet counted against the quota."""
        self.waits_to_mutate = False
        self._began = -1.0 if limits.request is None else self.services.clock.processor()
        """The processor time, in seconds, at which the present piece of work began; negative if no work is running, or
        if the time of the running work is not counted.
        """

    # --- methods that measure processor time --------------------------------------------------------------------------

    def begins_late(self) -> bool:
        """If the request was decoded in slices, begin to measure processor time now, until `handled` is called. Returns
        whether the request was decoded in slices.
        """
        is_late = self.limits.request is not None and self._began < 0
        if is_late:
            self._began = self.services.clock.processor()
        return is_late

    def handled(self) -> None:
        """End the measurement of processor time: the handler has returned, and no work of the request is running
        now."""
        self.measure()
        self._began = -1.0

    def measure(self) -> None:
        """Count the processor time that the current piece of work has used so far."""
        if self._began >= 0:
            now = self.services.clock.processor()
            self._spend(now - self._began)
            self._began = now

    def _spend(self, seconds: float) -> None:
        self.spent += seconds
        if self.is_settled and not self.is_exempt:
            self._throttling.count_processor(self)

    def _timed(self, work: Generator[Any, Any, R] | Coroutine[Any, Any, R]) -> Generator[Any, Any, R]:
        """Run `work`, and count the processor time of each of its steps. A step that runs inside other measured work of
        the request is not counted a second time.
        """
        processor = self.services.clock.processor
        value: Any = None
        error: BaseException | None = None
        try:
            while True:
                began = processor() if self._began < 0 else -1.0
                try:
                    given = work.send(value) if error is None else work.throw(error)
                except StopIteration as finished:
                    result: R = finished.value
                    return result
                finally:
                    # Drop the references to these values: an error that is raised later keeps this stack frame alive,
                    # and the frame would keep the values alive.
                    value = error = None
                    if began >= 0:
                        self._spend(processor() - began)
                try:
                    value = yield given
                except GeneratorExit:
                    raise
                except BaseException as thrown:  # the work itself handles its cancellation
                    error = thrown
        finally:
            work.close()

    def in_slices(self, work: Steps[R]) -> Answer[R]:
        return super().in_slices(work if self.limits.request is None else self._timed(work))

    def answered_in_slices(self, work: Steps[Answer[R]]) -> Answer[R]:
        return super().answered_in_slices(work if self.limits.request is None else self._timed(work))

    def in_a_task(self, work: Coroutine[Any, Any, R]) -> asyncio.Future[R]:
        return super().in_a_task(work if self.limits.request is None else self._timed_task(work))

    async def _timed_task(self, work: Coroutine[Any, Any, R]) -> R:
        result: R = await _awaited(self._timed(work))
        return result

    # --- methods for the other limits of the client -------------------------------------------------------------------

    def may_as_broker(self, rule: Rule) -> bool:
        may = super().may_as_broker(rule)
        self.is_exempt = self.is_exempt or may
        return may

    @contextmanager
    def mutations(self, partitions: int) -> Iterator[None]:
        limit, throttling = self.limits.mutation, self._throttling
        if limit is None or not partitions:
            yield
            return
        strict_since = STRICT_SINCE.get(ApiKey(self.api_key))
        is_strict = strict_since is not None and self.version >= strict_since
        if is_strict and throttling.wait(QuotaKey.CONTROLLER_MUTATION_RATE, limit) > 0:
            self.waits_to_mutate = True
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        throttling.use(QuotaKey.CONTROLLER_MUTATION_RATE, limit, partitions)
        self.waits_to_mutate = self.waits_to_mutate or not is_strict
        try:
            yield
        except KafkaError:
            throttling.use(QuotaKey.CONTROLLER_MUTATION_RATE, limit, -partitions)
            raise


@types.coroutine
def _awaited(steps: Generator[Any, Any, R]) -> Generator[Any, Any, R]:
    return (yield from steps)
