"""The span of a transaction, from its begin until its outcome is known."""

from __future__ import annotations

import asyncio
from contextvars import Token

from opentelemetry import context, trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, Status, StatusCode

from oncelog.errors import AbortableError, FatalError
from oncelog.tracing import attributes

COMMIT, ABORT, PREPARED, UNKNOWN = "commit", "abort", "prepared", "unknown"


class TransactionSpan:
    """The span of one transaction: a commit leaves the span's status unset, which means success; an abort sets an error
    with its cause. `cause` is the known reason of an upcoming abort. Only the first call that ends the span has an
    effect.
    """

    def __init__(self, span: Span) -> None:
        self._span = span
        self._token: Token[Context] | None = None
        self._is_over = False
        self.cause: BaseException | None = None

    def enter(self) -> None:
        """Make the span current: all work of this task until `leave` is part of the transaction's span."""
        self._token = context.attach(trace.set_span_in_context(self._span))

    def leave(self, cause: BaseException | None) -> None:
        if self._token is not None:
            context.detach(self._token)
            self._token = None
        if cause is not None and self.cause is None:
            self.cause = cause

    def committed(self, task: asyncio.Task[None]) -> None:
        """End the span when the commit is done. If the commit has failed and the transaction must be aborted, the span
        continues until the abort has ended.
        """
        error = None if task.cancelled() else task.exception()
        if task.cancelled():
            self.lost("the producer was closed before the commit was done")
        elif error is None:
            self.end(COMMIT)
        elif isinstance(error, AbortableError):
            self.will_fail(error)
        else:
            self.failed(error)

    def aborted(self, task: asyncio.Task[None]) -> None:
        """End the span when the task of the abort has ended; the result is aborted, failed or lost."""
        error = None if task.cancelled() else task.exception()
        if task.cancelled():
            self.lost("the producer was closed before the abort was done")
        elif error is not None:
            self.failed(error)
        else:
            cause = "" if self.cause is None else f": {self.cause}"
            self.end(ABORT, f"aborted{cause}")

    def failed(self, error: BaseException) -> None:
        """End the span, because this producer will not learn the outcome."""
        self.cause = error
        self.lost(str(error))

    def will_fail(self, error: BaseException) -> None:
        """Store the error after which the transaction can only be aborted, or this producer can no longer end it."""
        if isinstance(error, FatalError):
            self.failed(error)
        else:
            self.cause = self.cause or error

    def lost(self, why: str) -> None:
        self.end(UNKNOWN, why)

    def end(self, result: str, why: str | None = None) -> None:
        if self._is_over:
            return
        self._is_over = True
        span = self._span
        span.set_attribute(attributes.RESULT, result)
        if why is not None:
            span.set_status(Status(StatusCode.ERROR, why))
            span.set_attribute(attributes.ERROR, result if self.cause is None else attributes.error_type(self.cause))
        span.end()
