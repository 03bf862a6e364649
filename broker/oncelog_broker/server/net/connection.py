"""One client connection: the event loop's callbacks, which connect the receive side, the requests and the send side.

Requests are handled in order. The next request is handled when the effects of the previous request are done (T17); by
then most requests have their response. A request whose response is not ready yet has a slot in the `answer_queue`,
which keeps the responses in the order of the requests. A waiting request blocks the requests behind it, as in Kafka,
until it has declared its effects done (`let_next_in`). A Produce declares its effects done when its records are
appended, before other replicas have them. So pipelined Produce requests wait concurrently, and their appends stay in
order. `connection_state` names every reason why the next request is not handled. While a request is held (delayed for
one of these reasons), the client's bytes stay in the receive buffer and, when the buffer is full, in the client's
socket: back-pressure.

When a client closes the connection, the requests that arrived completely are still handled, one after the other: a
producer with acks=0 expects no response, and may close the connection as soon as it has sent its last request. The
requests that are handled after the close do not wait for other clients or replicas.

In one iteration of the loop a connection handles one request, and further requests only while the loop budget (time for
further work in this iteration) lasts, which all connections share (docs/design/fairness.md).
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Any, Final, Protocol, cast

from oncelog_broker.security.authorizer.authorizer import Rights
from oncelog_broker.security.principal import ANONYMOUS, Principal
from oncelog_broker.security.quotas.client_limits import ClientLimits
from oncelog_broker.server.net.answer_queue import AnswerQueue, Slot
from oncelog_broker.server.net.connection_state import HANDLING, LIFTED_IN_TIME, Event, Hold, Lifecycle, State
from oncelog_broker.server.net.connections import Connections, Departure
from oncelog_broker.server.net.frame_reader import FrameRefused, ReceiveBuffer
from oncelog_broker.server.net.header_cache import NO_HEADER, CachedHeader
from oncelog_broker.server.net.lane import Lane
from oncelog_broker.server.net.limits import (
    ANSWER_ESTIMATE_BYTES,
    COPIED_ANSWER_BYTES,
    FRAME_SECONDS,
    LARGE_REQUEST_BYTES,
    MIN_FRAME_RATE,
    RESPONSE_STALL_SECONDS,
)
from oncelog_broker.server.net.login_gate import LOGIN_SECONDS, LoginGate
from oncelog_broker.server.net.memory_budget import BEYOND_WINDOW_SECONDS, PROGRESS_WINDOW_SECONDS, Progress
from oncelog_broker.server.net.software import UNKNOWN
from oncelog_protocol.errors import MalformedMessage
from oncelog_protocol.wire_writers import Buffer

logger = logging.getLogger(__name__)

MEMORY_RETRY_SECONDS: Final = 0.05
"""If the memory budget has no memory for a connection's large frame, the connection requests memory again after this
number of seconds."""
HOLDS_WITHOUT_SENDING: Final = "request makes no progress while others wait for the memory that it holds"
LEFT_SECONDS: Final = 60.0
"""The number of seconds that each request may still take after its client has disconnected. After this time the request
is abandoned, together with the requests behind it.
"""
REST_SECONDS: Final = 1.0
"""A connection that gets no request for this number of seconds frees its receive buffer."""


class PutOff(Exception):
    """Raised when a request must be handled later, because its client shares a quota with other clients that have
    exceeded this quota.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__(f"put off for {seconds} s")
        self.seconds = seconds


class FrameHandler(Protocol):
    """Type of a function that serves one request; `frame` does not include the size field. Raises MalformedMessage for
    a request that cannot be answered, and PutOff for a request that the caller must pass to the dispatcher again later.
    """

    def __call__(self, connection: BrokerConnection, frame: memoryview, /) -> None: ...


class BrokerConnection(asyncio.BufferedProtocol):
    """A connection as the event loop's protocol object. The connection passes each frame to `handle`. `handle` either
    calls `respond` immediately, or calls `wait_for` first and `respond` later.
    """

    __slots__ = (
        "_answer_budget",
        "_answer_progress",
        "_answers",
        "_connections",
        "_frame_progress",
        "_frame_since",
        "_handle",
        "_held_by",
        "_is_encrypted",
        "_is_watched",
        "_lifecycle",
        "_loop",
        "_loop_budget",
        "_may_be_large",
        "_memory_retry",
        "_reading_paused",
        "_received",
        "_throttled_since",
        "_throttled_until",
        "_transport",
        "_unthrottle",
        "_without_memory_since",
        "at_end",
        "cached_header",
        "client_host",
        "client_limits",
        "client_port",
        "gate",
        "lanes",
        "last_active",
        "listener",
        "principal",
        "rights",
        "software",
        "state",
    )

    def __init__(
        self,
        handle: FrameHandler,
        connections: Connections,
        listener: str,
        principal: Principal = ANONYMOUS,
        gate: LoginGate | None = None,
        *,
        is_encrypted: bool = False,
    ) -> None:
        """`gate`: the login gate, which decides which requests are allowed before the login; None if no login is
        needed.
        """
        self._loop = asyncio.get_running_loop()
        self._handle = handle
        self._connections = connections
        self._loop_budget = connections.budget
        self._lifecycle = Lifecycle()
        self._received = ReceiveBuffer(connections.limits, "")
        self._answers = AnswerQueue(connections.limits, "", connections.scheduler, self._lifecycle)
        self._transport: asyncio.Transport | None = None
        self._held_by: Slot | None = None
        """The slot of a request that delays the next request because its effects are not done (`Hold.EFFECTS`); None if
        there is no such request.
        """
        self._may_be_large = False
        """Whether the next request may be a large one, because the scheduler of large requests has selected this
        connection.
        """
        self._is_watched = False
        self._reading_paused = False
        self._frame_since = 0.0
        self._memory_retry: asyncio.TimerHandle | None = None
        """The timer at whose end the connection removes `Hold.MEMORY` and requests memory again. While this timer is
        running, nothing is read from the connection.
        """
        self._without_memory_since = 0.0
        self._answer_budget = connections.limits.answers
        self._frame_progress = Progress(self._loop.time())
        self._answer_progress = Progress(self._loop.time())
        self._unthrottle: asyncio.TimerHandle | None = None
        """The timer after which `Hold.THROTTLE` is lifted."""
        self._throttled_since = self._throttled_until = 0.0
        self.client_limits: ClientLimits | None = None
        """The client's quotas; None until they are looked up."""
        self.listener = listener
        self.rights: Rights | None = None
        """The principal's rights; None until they are looked up, and after a change of principal."""
        self.principal = principal
        self.gate = gate
        self._is_encrypted = is_encrypted
        self.last_active = self._loop.time()
        self.cached_header: CachedHeader = NO_HEADER
        self.lanes: dict[int, Lane] = {}
        """The fast lanes (fast paths for repeated requests) that the client's requests have opened, by API key << 16 |
        version.
        """
        self.client_host = ""
        self.client_port = 0
        self.software = UNKNOWN
        self.state: dict[str, object] = {}
        self.at_end: dict[str, Callable[[], None]] = {}
        """Callbacks that are called when the connection ends; the key names the owner of the callback."""

    # --- methods that the transport calls -----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        host, port = (peer[0], peer[1]) if isinstance(peer, tuple) and len(peer) >= 2 else ("local", 0)
        self.client_host, self.client_port = host, port
        connected = transport.get_extra_info("socket")
        if not self._is_encrypted and self._connections.refuse_if_over_rate(self._transport, host, self.listener):
            # Ignore the bytes: uvloop calls this method once even if reading was paused before the transport began to
            # read.
            self._lifecycle.on(Event.CLOSED)
            return
        refused = self._connections.admit(self, host)
        if refused:
            logger.warning("connection refused", extra={"client": host, "reason": refused})
            self._transport.abort()
            return
        limits = self._connections.limits
        self._received = ReceiveBuffer(limits, host)
        self._answers = AnswerQueue(limits, host, self._connections.scheduler, self._lifecycle)
        if self.gate is not None:
            self._received.accept_logins(self.gate.max_frame_bytes)
        self._answers.open(self._transport, self._on_room, copies_all=self._is_encrypted)
        for option, size in (
            (socket.SO_SNDBUF, limits.send_buffer_bytes),
            (socket.SO_RCVBUF, limits.receive_buffer_bytes),
        ):
            if size >= 0:
                connected.setsockopt(socket.SOL_SOCKET, option, size)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._answers.lose_client()
        if self._lifecycle.state not in HANDLING or not self._leave():
            self._lifecycle.on(Event.CLOSED)
            if self._loop_budget.claim():
                self._end()
            else:
                self._connections.departures.join(Departure(self._end))

    def eof_received(self) -> bool:
        """Called when the client has ended its stream. Return whether the transport must stay open, because received
        requests are still without a response.
        """
        if self._lifecycle.state in HANDLING:
            return self._leave()
        return self._answers.is_leaving

    def _leave(self) -> bool:
        """Record that the client sends no more bytes. Returns False if no request is left to handle and no response is
        left to send.
        """
        is_unread = self._held_by is not None and self._held_by.is_unread
        if not (is_unread or self._received.has_whole_frame or self._answers.is_leaving):
            return False
        self._lifecycle.on(Event.CLIENT_LEFT)
        self._answers.stop_long_polls()
        if not self._lifecycle.holds & LIFTED_IN_TIME:
            self._wait_for_next_turn()
        return True

    def _end(self) -> None:
        """Cancel the waiting responses and free the buffers: all work is done."""
        if self._lifecycle.state is State.ENDED:
            return
        self._lifecycle.on(Event.LOST)
        self._held_by = None
        self._connections.release(self, self.client_host)
        if self._unthrottle is not None:
            self._unthrottle.cancel()
        self._answers.close()
        self._received.give_up()
        for call in self.at_end.values():
            call()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._received.room()

    @property
    def room_bytes(self) -> int:
        """The size in bytes of the buffer that `get_buffer` returns; 0 if the buffer must be allocated first."""
        return self._received.room_bytes

    def buffer_updated(self, nbytes: int) -> None:
        self._received.add(nbytes)
        self.last_active = self._loop.time()
        if not self._lifecycle.holds:
            self._handle_frames()
            if self._received.is_amid_frame and not self._lifecycle.holds and not self._loop_budget.claim():
                # Pause reading, because otherwise the loop would read as long as bytes arrive, and other connections
                # would not run.
                self._pause_reading()
                self._wait_for_next_turn()
        elif self._received.is_full:
            self._pause_reading()

    def pause_writing(self) -> None:
        now = self._loop.time()
        self._answers.stall(now)
        self._answer_progress.restart(now, self._answers.sent)

    def resume_writing(self) -> None:
        self._answers.flow()
        self.last_active = self._loop.time()
        self._go_on()

    def _on_room(self) -> None:
        """Continue after the transport has taken the last byte of a large response."""
        if self._lifecycle.state is State.DRAINING:
            self._close_transport()
        self.last_active = self._loop.time()
        self._go_on()

    # --- methods that handle received frames --------------------------------------------------------------------------

    def _handle_frames(self) -> None:
        """Handle complete frames in the buffer until a hold (a reason to wait) is set or the loop budget is spent.
        Responses that are ready immediately are sent together.
        """
        self._answers.hold()
        try:
            self._handle_each()
            self._make_room()
        except PutOff as error:
            self.throttle(error.seconds)
            if self._received.is_full:  # the frame stays in the buffer, so there is no room for more bytes
                self._pause_reading()
        except FrameRefused as error:
            self.close(str(error))
        except MalformedMessage as error:
            self.close(f"malformed request: {error}")
        except Exception:
            logger.exception("request failed", extra={"client": self.client_host})
            self.close("internal error")
        finally:
            self._answers.release()

    def _handle_each(self) -> None:
        received, answers, handle, lifecycle = self._received, self._answers, self._handle, self._lifecycle
        while not lifecycle.holds:
            if self._answer_budget.is_tight and not answers.memory.allows(ANSWER_ESTIMATE_BYTES):
                self._wait_for_memory()
                return
            is_large = received.end - received.begin > LARGE_REQUEST_BYTES
            if is_large and not (self._may_be_large or self._loop_budget.claim()):
                lifecycle.put(Hold.LARGE_REQUEST)
                self._connections.large_requests.join(self)
                return
            self._may_be_large = False
            frame = received.next_frame()
            if frame is None:
                # The time limit of the frame (FRAME_SECONDS) starts here, not at the frame's first byte: the connection
                # reads no further bytes of this frame while it handles earlier requests.
                if not received.is_amid_frame:
                    self._frame_since = 0.0
                elif not self._frame_since:
                    self._frame_since = self._loop.time()
                    self._frame_progress.restart(self._frame_since, received.received)
                return
            self._frame_since = 0.0
            try:
                handle(self, frame)
            except PutOff:
                received.put_back(frame)
                raise
            if received.begin == received.end or lifecycle.holds:
                return
            if not self._loop_budget.claim():
                self._wait_for_next_turn()
                return

    def _wait_for_next_turn(self) -> None:
        """Handle no more requests in this iteration of the loop."""
        self._lifecycle.put(Hold.TURN)
        self._loop.call_soon(self._in_next_turn)

    def _in_next_turn(self) -> None:
        self._lifecycle.lift(Hold.TURN)
        self._go_on()

    def take_slice(self) -> bool:
        """Handle the large request; the scheduler of large requests has selected this connection."""
        self._lifecycle.lift(Hold.LARGE_REQUEST)
        self._may_be_large = True
        self._go_on()
        self._may_be_large = False
        return False

    def throttle(self, seconds: float) -> None:
        """Handle no request for `seconds`, because the client has exceeded a quota (KIP-219). The client's bytes stay
        in the receive buffer and, when the buffer is full, in the client's socket.
        """
        now = self._loop.time()
        is_ending = self._lifecycle.state in (State.DRAINING, State.ENDED)
        if is_ending or now + seconds <= self._throttled_until:
            return
        if self._unthrottle is None:
            self._throttled_since = now
        else:
            self._unthrottle.cancel()
        self._lifecycle.put(Hold.THROTTLE)
        self._throttled_until = now + seconds
        self._unthrottle = self._loop.call_at(self._throttled_until, self._end_throttling)

    def _end_throttling(self) -> None:
        """End the throttling of this connection. The throttle time does not count toward the time limit of a frame that
        has begun to arrive."""
        if self._unthrottle is not None:
            self._unthrottle.cancel()
        now, self._unthrottle, self._throttled_until = self._loop.time(), None, 0.0
        if self._frame_since:
            self._frame_since += now - max(self._frame_since, self._throttled_since)
        self._frame_progress.restart(now, self._received.received)
        self._lifecycle.lift(Hold.THROTTLE)
        self._go_on()

    def _make_room(self) -> None:
        """Make room for the next read, or pause reading: further bytes stay in the client's socket."""
        if self._lifecycle.state is State.LAST_REQUEST:
            self._received.give_up()  # free the buffer: no further request is handled
            return
        if self._lifecycle.state is not State.OPEN:
            return
        if self._memory_retry is not None or self._received.rewind():
            return
        if not self._received.make_room():
            self._wait_for_memory()
        elif self._received.is_full:
            self._pause_reading()
        if self._received.memory.is_beyond and not self._is_watched:
            self._is_watched = True
            self._loop.call_later(BEYOND_WINDOW_SECONDS, self._watch)

    def _watch(self) -> None:
        """Check a connection that uses more than its share of memory. Only one connection at a time may exceed its
        share, so this check runs more often than `sweep`.
        """
        is_ending = self._lifecycle.state in (State.DRAINING, State.ENDED)
        self._is_watched = self._received.memory.is_beyond and not is_ending
        if not self._is_watched:
            return
        if self._sends_too_slowly(self._loop.time(), BEYOND_WINDOW_SECONDS) and self._received.memory.is_short:
            self.close(HOLDS_WITHOUT_SENDING)
        else:
            self._loop.call_later(BEYOND_WINDOW_SECONDS, self._watch)

    def _wait_for_memory(self) -> None:
        """Read and handle nothing for MEMORY_RETRY_SECONDS. This time does not count toward the time limit of a frame
        that has begun to arrive.
        """
        self._pause_reading()
        if self._memory_retry is None:
            self._lifecycle.put(Hold.MEMORY)
            self._memory_retry = self._loop.call_later(MEMORY_RETRY_SECONDS, self._retry)
            self._without_memory_since = self._without_memory_since or self._loop.time()

    def _retry(self) -> None:
        self._memory_retry = None
        self._lifecycle.lift(Hold.MEMORY)
        if self._lifecycle.holds:
            self._received.memory.wait_no_longer()
        self._go_on()
        if self._memory_retry is None and self._without_memory_since:
            now = self._loop.time()
            if self._frame_since:
                self._frame_since += now - self._without_memory_since
            self._frame_progress.restart(now, self._received.received)
            self._without_memory_since = 0.0

    def _go_on(self) -> None:
        """Handle the next requests if no hold (reason to wait) remains; called when a hold was removed."""
        if not self._lifecycle.holds:
            # If an open connection has no received bytes, it has no frame to handle, and no request still reads a
            # frame.
            if self._received.end or self._lifecycle.state is not State.OPEN:
                self._handle_frames()
            if not self._lifecycle.holds:
                if self._lifecycle.state is State.CLIENT_GONE:
                    self._lifecycle.on(Event.ALL_DONE)
                    self._close_transport()
                else:
                    self._read_on()

    def _pause_reading(self) -> None:
        if not self._reading_paused and self._transport is not None:
            self._reading_paused = True
            self._transport.pause_reading()

    def _read_on(self) -> None:
        if self._reading_paused and not self._received.is_full and self._transport is not None:
            self._reading_paused = False
            self._transport.resume_reading()

    # --- methods that send responses ----------------------------------------------------------------------------------

    def respond(self, parts: list[Buffer], slot: Slot | None = None) -> None:
        """Send the response to the request of `slot` or, without a slot, to the request being handled. `parts` begins
        with the response's size and header.
        """
        self._answers.put(parts, slot)

    @property
    def copied_answer_bytes(self) -> int:
        """Return how many bytes of records a response may copy to the heap. The result is only a fraction of the free
        memory budget, because records can also be sent from mapped files without a copy.
        """
        if not self._answer_budget.used:
            return self._connections.limits.copied_answer_bytes
        return min(COPIED_ANSWER_BYTES, self._answers.memory.room // 4)

    def wait_for(
        self,
        answer: asyncio.Future[Any],
        *,
        reads_frame: bool,
        holds_back: bool,
        is_long_poll: bool = False,
        is_unread: bool = False,
    ) -> Slot:
        """Reserve a slot for a response that comes later: the caller then calls `respond` with this slot, and `finish`.

        `answer` is cancelled when the client disconnects. If other requests wait behind this request, `answer` is
        cancelled only if `is_long_poll`, which means that it waits for actions of other clients. If `reads_frame` is
        True, the bytes of the request's frame stay unchanged until the response is sent. `holds_back`: whether no other
        request of the connection is handled before `finish` or `let_next_in`. If `is_unread` is True, the request is
        still being decoded, and is not cancelled before `begins`.
        """
        slot = self._answers.reserve(answer, is_long_poll=is_long_poll, is_unread=is_unread)
        if is_long_poll and self._lifecycle.state is State.CLIENT_GONE and not is_unread:
            answer.cancel()
        if reads_frame:
            self._received.lend()
        if holds_back:
            self._held_by = slot
            self._lifecycle.put(Hold.EFFECTS)
        return slot

    def begins(self, slot: Slot) -> None:
        """Record that this slot's request is decoded and is handled from now on."""
        slot.is_unread = False
        if slot.is_long_poll and self._lifecycle.state is State.CLIENT_GONE:
            self._loop.call_soon(self._answers.stop_long_polls)

    def let_next_in(self, slot: Slot) -> None:
        """Record that all effects of this slot's request are done, although it has no response yet: the next request is
        handled in the next iteration of the loop.
        """
        if self._held_by is slot:
            self._effects_done()
            if not self._lifecycle.holds & LIFTED_IN_TIME:
                self._wait_for_next_turn()

    def _effects_done(self) -> None:
        self._held_by = None
        self._lifecycle.lift(Hold.EFFECTS)

    def finish(self, slot: Slot) -> None:
        """Record that this slot's request has its response, or gets no response. The connection's idle time starts only
        now.
        """
        if self._held_by is slot:
            self._effects_done()
        self.last_active = self._loop.time()
        self._answers.finish(slot)
        if self._lifecycle.state is State.LAST_REQUEST and not self._answers.is_waiting:
            self._lifecycle.on(Event.ALL_DONE)
            self._close_transport()
        self._go_on()

    def finish_all(self, slots: list[Slot]) -> None:
        """Record that the requests of these slots have their responses, and send the responses with one write. Unlike
        `finish`, this method is only for requests that do not delay the next request."""
        if slots:
            self._answers.make_ready(slots[:-1])
            self.finish(slots[-1])

    def cancelled(self, slot: Slot) -> None:
        """Record that the response of this slot was cancelled: its client has disconnected, or the broker is
        stopping."""
        if self._lifecycle.state is State.CLIENT_GONE:
            self.finish(slot)
        else:
            self.close("the broker stops")

    # --- methods that close the connection ----------------------------------------------------------------------------

    def close(self, reason: str) -> None:
        """Abort the connection and log why. After this call, the connection handles no further request."""
        self._lifecycle.on(Event.CLOSED)
        if self._transport is not None:
            logger.info(
                "connection closed", extra={"client": f"{self.client_host}:{self.client_port}", "reason": reason}
            )
            self._transport.abort()
        else:
            self._end()

    def close_after_answer(self) -> None:
        """Make the request that is being handled the last request of this connection. The connection closes when all
        responses are sent.
        """
        self._lifecycle.on(Event.LAST_REQUEST_TAKEN)

    def authenticated(self, principal: Principal, *, may_expire: bool) -> None:
        """Record that the client has logged in as `principal`. If the login `may_expire`, the login gate still checks
        each request.
        """
        self.principal = principal
        self.rights = None
        self._received.accept_requests()
        if not may_expire:
            self.gate = None

    def shut(self) -> None:
        """Close the connection after all buffered bytes are sent: the broker is stopping."""
        self._lifecycle.on(Event.CLOSED)
        self._close_transport()

    def _close_transport(self) -> None:
        """Close the transport if all buffered bytes are sent; otherwise `_on_room` calls this method again."""
        if self._transport is None:
            self._end()
        elif not self._answers.is_leaving:
            self._transport.close()

    def sweep(self, now: float) -> None:
        """Periodic check: close an idle or stalled connection, and free unused memory. `now` is the loop's time."""
        limits = self._connections.limits
        if self._unthrottle is not None and self._received.memory.held and self._received.memory.is_short:
            # Other connections need the memory that this request uses, so handle the request now, and throttle
            # afterwards.
            if self.client_limits is not None:
                self.client_limits.serve_next()
            self._end_throttling()
        is_resting = not self._answers.is_waiting
        if self._answers.stalled_seconds(now) > RESPONSE_STALL_SECONDS:
            self.close(f"responses not read for {RESPONSE_STALL_SECONDS:.0f} s")
        elif self._reads_too_slowly(now) and limits.answers.is_short:
            self.close("responses not read while others wait for the memory that they take")
        elif self._lifecycle.state is State.CLIENT_GONE and now - self.last_active > LEFT_SECONDS:
            self.close(f"the client has disconnected, and its request is not done after {LEFT_SECONDS:.0f} s")
        elif self.gate is not None and self.gate.is_late(now):
            self.close(f"not logged in within {LOGIN_SECONDS:.0f} s")
        elif self._is_frame_late(now):
            self.close(f"request not complete after {FRAME_SECONDS:.0f} s, nor at {MIN_FRAME_RATE} bytes/s")
        elif self._sends_too_slowly(now) and self._received.memory.is_short:
            self.close(HOLDS_WITHOUT_SENDING)
        elif is_resting and now - self.last_active > limits.idle_seconds:
            self.close("idle for connections.max.idle.ms")
        elif is_resting and self._received.begin == self._received.end and now - self.last_active > REST_SECONDS:
            self._received.give_up()

    def _reads_too_slowly(self, now: float) -> bool:
        held = self._answers.unsent_heap_bytes
        return self._answer_progress.is_too_slow(now, self._answers.sent, held) and held > 0

    def _is_frame_late(self, now: float) -> bool:
        if not self._frame_since or self._without_memory_since or self._unthrottle is not None:
            return False
        return now - self._frame_since > FRAME_SECONDS + self._received.frame_received / MIN_FRAME_RATE

    def _sends_too_slowly(self, now: float, window_seconds: float = PROGRESS_WINDOW_SECONDS) -> bool:
        if not self._frame_since or self._without_memory_since or self._unthrottle is not None:
            return False
        received = self._received
        return self._frame_progress.is_too_slow(now, received.received, received.memory.held, window_seconds)
