"""TCP streams of the simulated network. Each stream has a transport like asyncio's at both ends, and a pipe of packets
for each direction.

Written bytes may be cut into two packets at any position, and arrive in order. At most `WINDOW_BYTES` bytes may be in
flight or unread at the other end; further bytes stay with the writer, and the writer's protocol gets `pause_writing`.
The end of a stream, or a reset, is also a packet, so that earlier bytes arrive first.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum
from random import Random
from typing import Any, Final, Protocol, cast

from oncelog_simulation.links import Link
from oncelog_simulation.loop import SimulatedLoop
from oncelog_simulation.process import Process

FIRST_EPHEMERAL_PORT: Final = 32768
"""First port for connections, and for listeners that bind port 0."""

WINDOW_BYTES: Final = 256 * 1024
"""Limit on the bytes of one direction that were sent and are not yet read at the other end."""
HIGH_WATER_BYTES: Final = 64 * 1024
"""If a transport has more unsent bytes than this, it calls `pause_writing`; the limit is asyncio's."""
CUT_SHARE: Final = 0.08
"""Fraction of the writes that are cut into two packets at some byte."""
READ_BYTES: Final = 256 * 1024
"""Limit in bytes on one read, for protocols without their own buffer."""


class SimulatedHost:
    """The network state of one host."""

    def __init__(self, name: str, address: str) -> None:
        self.name = name
        self.address = address
        self.is_up = True
        """False from a power cut to the next start: the host does not respond, and has forgotten all earlier streams.
        """
        self.transports: dict[StreamTransport, None] = {}
        """The stream ends that belong to processes on this host."""
        self._last_port = FIRST_EPHEMERAL_PORT

    def free_port(self) -> int:
        """Return a port that was never used on this host."""
        self._last_port += 1
        return self._last_port


class Sign(Enum):
    """A packet that contains no bytes."""

    END = "end"
    RESET = "reset"


Packet = bytes | Sign


class End(Protocol):
    """Interface of the end of a pipe that receives the packets."""

    @property
    def host(self) -> SimulatedHost: ...

    def arrived(self, packet: Any) -> None:
        """Receive a packet that has reached the host's kernel."""


class Pipe:
    """One direction of a stream: the packets in flight to `target`. A packet is a sequence of bytes, or any other
    value.
    """

    __slots__ = (
        "_last_arrival",
        "_link",
        "_loop",
        "_random",
        "_stuck",
        "is_dropped",
        "on_its_way",
        "stalled_until",
        "target",
    )

    def __init__(self, loop: SimulatedLoop, link: Link, target: End, random: Random) -> None:
        self._loop = loop
        self._link = link
        self._random = random
        self.target = target
        self.on_its_way = 0
        """Number of bytes that were sent and are not yet read."""
        self._last_arrival = 0.0
        self._stuck: deque[Any] = deque()
        """Packets that arrived while the link was cut, or that wait behind such packets."""
        self.is_dropped = False
        """Whether the stream is broken, so that no more packets arrive."""
        self.stalled_until = 0.0
        """No packet that is sent from now on arrives before this virtual time."""

    def send(self, packet: Any) -> None:
        if self.is_dropped:
            return
        if isinstance(packet, bytes):
            self.on_its_way += len(packet)
            if len(packet) > 1 and self._random.random() < CUT_SHARE:
                place = self._random.randrange(1, len(packet))
                self._schedule(packet[:place])
                packet = packet[place:]
        self._schedule(packet)

    def _schedule(self, packet: Any, delay: float = 0.0) -> None:
        arrival = max(self._last_arrival, self._loop.virtual() + self._link.latency() + delay, self.stalled_until)
        self._last_arrival = arrival
        if arrival > self._link.last_arrival:
            self._link.last_arrival = arrival
        self._loop.happen(arrival, self._arrive, packet)

    def _arrive(self, packet: Any) -> None:
        if self.is_dropped:
            return
        if self._link.is_cut or self._stuck or not self.target.host.is_up:
            self._stuck.append(packet)
            self._link.waiting[self] = None
            return
        self.target.arrived(packet)

    def send_again(self, delay: float) -> None:
        """Deliver the stuck packets after `delay` seconds: the link is repaired, or the host has power again."""
        stuck, self._stuck = self._stuck, deque()
        for packet in stuck:
            self._schedule(packet, delay)

    def drop(self) -> None:
        self.is_dropped = True
        self._stuck.clear()
        self._link.waiting.pop(self, None)


class _Buffered(Protocol):
    def get_buffer(self, sizehint: int) -> memoryview: ...

    def buffer_updated(self, nbytes: int) -> None: ...

    def data_received(self, data: bytes) -> None: ...

    def eof_received(self) -> bool | None: ...

    def connection_made(self, transport: asyncio.BaseTransport) -> None: ...

    def connection_lost(self, exc: Exception | None) -> None: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...


class _Socket:
    """Stands for the socket of a transport: returns information about it, although no real socket exists."""

    def __init__(self, own: tuple[str, int], peer: tuple[str, int]) -> None:
        self._own = own
        self._peer = peer

    def setsockopt(self, *option: Any) -> None:
        pass

    def getsockname(self) -> tuple[str, int]:
        return self._own

    def getpeername(self) -> tuple[str, int]:
        return self._peer


class StreamTransport(asyncio.Transport):
    """One end of a stream, which belongs to a process of a host."""

    def __init__(
        self,
        loop: SimulatedLoop,
        process: Process,
        host: SimulatedHost,
        peer_host: SimulatedHost,
        own: tuple[str, int],
        peer: tuple[str, int],
        random: Random,
    ) -> None:
        super().__init__({"sockname": own, "peername": peer, "socket": _Socket(own, peer)})
        self._loop = loop
        self._random = random
        self.process = process
        self.host = host
        self.peer_host = peer_host
        self.pipe: Pipe
        """The pipe to the other end."""
        self.other: StreamTransport
        """The other end of the stream."""
        self._protocol: _Buffered | None = None
        self._unread: deque[Packet] = deque()
        self._is_paused = False
        self._unsent: deque[bytes] = deque()
        self._unsent_bytes = 0
        self._high = HIGH_WATER_BYTES
        self._low = HIGH_WATER_BYTES // 4
        self._is_writing_paused = False
        self._is_closing = False
        self._writes_end = False
        self._is_end_sent = False
        self._is_lost = False
        self._is_feeding = False

    # --- driving the protocol

    def open(self, factory: Callable[[], asyncio.BaseProtocol]) -> None:
        """Connect the protocol, in the process of this end."""
        self._protocol = cast("_Buffered", factory())
        self._protocol.connection_made(self)
        if self._unread:
            self._feed_soon()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = cast("_Buffered", protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return cast("asyncio.BaseProtocol", self._protocol)

    # --- reading

    def arrived(self, packet: Packet) -> None:
        """Receive a packet that has reached this host's kernel."""
        if self._is_lost or not self.process.is_alive:
            if not isinstance(packet, Sign):
                self._answer_with_reset()
            return
        self._unread.append(packet)
        if self._protocol is not None and not self._is_feeding:
            self._is_feeding = True
            self._loop.post(self.process, self._feed_later)

    def _answer_with_reset(self) -> None:
        """Send a reset, because this host's kernel does not know the stream."""
        if not self.pipe.is_dropped:
            self.pipe.send(Sign.RESET)

    def _feed_soon(self) -> None:
        if not self._is_feeding:
            self._is_feeding = True
            self._loop.call_soon(self._feed_later)

    def _feed_later(self) -> None:
        self._is_feeding = False
        self._feed()

    def _feed(self) -> None:
        """Pass the result of one socket read to the protocol."""
        if not self._unread or self._is_lost or self._protocol is None:
            return
        packet = self._unread[0]
        if packet is Sign.RESET:
            self._unread.popleft()
            self._lose(ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)))
            return
        if self._is_paused or self._is_closing:
            return
        try:
            if packet is Sign.END:
                self._unread.popleft()
                if not self._protocol.eof_received():
                    self.close()
            else:
                self._read(packet)
        except Exception as error:
            self._loop.call_exception_handler(
                {"message": "a protocol failed", "exception": error, "transport": self, "protocol": self._protocol}
            )
            self.abort()
        if self._unread and not self._is_paused:
            self._feed_soon()

    def _read(self, packet: bytes) -> None:
        assert self._protocol is not None
        if not isinstance(self._protocol, asyncio.BufferedProtocol):
            self._unread.popleft()
            self._has_read(len(packet))
            self._protocol.data_received(packet)
            return
        buffer = self._protocol.get_buffer(-1)
        room, taken = len(buffer), 0
        while taken < room and self._unread and not isinstance(self._unread[0], Sign):
            packet = self._unread[0]
            piece = packet[: room - taken]
            buffer[taken : taken + len(piece)] = piece
            taken += len(piece)
            if len(piece) == len(packet):
                self._unread.popleft()
            else:
                self._unread[0] = packet[len(piece) :]
        self._has_read(taken)
        self._protocol.buffer_updated(taken)

    def _has_read(self, size: int) -> None:
        """Record that `size` bytes have left the window, so that the other end may send more."""
        other = self.other
        other.pipe.on_its_way -= size
        if other._unsent:
            self._loop.call_in(other.process, self._loop.virtual() + self.pipe._link.latency(), other._send_more)

    def pause_reading(self) -> None:
        self._is_paused = True

    def resume_reading(self) -> None:
        self._is_paused = False
        if self._unread:
            self._feed_soon()

    def is_reading(self) -> bool:
        return not self._is_paused and not self._is_closing

    # --- writing

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._writes_end:
            raise RuntimeError("Cannot call write() after write_eof()")
        if self._is_lost or self._is_closing or not self.process.is_alive or not data:
            return
        self._unsent.append(bytes(data))
        self._unsent_bytes += len(data)
        self._send_more()
        if self._unsent_bytes > self._high and not self._is_writing_paused:
            self._is_writing_paused = True
            assert self._protocol is not None
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def _send_more(self) -> None:
        while self._unsent and self.pipe.on_its_way < WINDOW_BYTES:
            piece, room = self._unsent.popleft(), WINDOW_BYTES - self.pipe.on_its_way
            if len(piece) > room:
                self._unsent.appendleft(piece[room:])
                piece = piece[:room]
            self._unsent_bytes -= len(piece)
            self.pipe.send(piece)
        if not self._unsent:
            self._all_is_sent()
        if self._is_writing_paused and self._unsent_bytes <= self._low and self._protocol is not None:
            self._is_writing_paused = False
            self._protocol.resume_writing()

    def _all_is_sent(self) -> None:
        if (self._writes_end or self._is_closing) and not self._is_end_sent:
            self._is_end_sent = True
            self.pipe.send(Sign.END)
        if self._is_closing:
            self._loop.call_soon(self._lose, None)

    def write_eof(self) -> None:
        if not self._writes_end and not self._is_closing:
            self._writes_end = True
            if not self._unsent:
                self._all_is_sent()

    def can_write_eof(self) -> bool:
        return True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = (HIGH_WATER_BYTES if low is None else 4 * low) if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_size(self) -> int:
        return self._unsent_bytes

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    # --- the end of a stream

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        if self._is_closing or not self.process.is_alive:
            return
        self._is_closing = True
        if not self._unsent:
            self._all_is_sent()

    def abort(self) -> None:
        if self._is_lost or not self.process.is_alive:
            return
        self._is_closing = True
        if not self._is_end_sent:
            self._is_end_sent = True
            self.pipe.send(Sign.RESET)
        self._unsent.clear()
        self._unsent_bytes = 0
        self._loop.call_soon(self._lose, None)

    def _lose(self, error: Exception | None) -> None:
        if self._is_lost:
            return
        self._is_lost = self._is_closing = True
        self.host.transports.pop(self, None)
        self._unread.clear()
        self._unsent.clear()
        self._unsent_bytes = 0
        protocol, self._protocol = self._protocol, None
        if protocol is not None:
            protocol.connection_lost(error)

    def break_off(self, error: OSError) -> None:
        """Break the stream at this end, whose process is notified. The other end is not notified."""
        self.pipe.drop()
        self._loop.post(self.process, self._lose, error)

    def give_up_if(self, is_still: Callable[[], bool]) -> None:
        """Break the stream at both ends with a timeout, as TCP does, unless it has already ended or `is_still` returns
        false.
        """
        if self._is_lost or not is_still():
            return
        for end in (self, self.other):
            if not end._is_lost:
                end.break_off(TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)))

    def reset(self) -> None:
        """Break the stream as a network device between the hosts would do: both ends are notified."""
        for end in (self, self.other):
            if not end._is_lost:
                end.break_off(ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)))

    def die(self, *, with_reset: bool) -> None:
        """End the stream as the kernel does after the death of a process: bytes that were already sent still arrive."""
        if self._is_lost:
            return
        self._is_lost = True
        self.host.transports.pop(self, None)
        self._unread.clear()
        if not self._is_end_sent:
            self._is_end_sent = True
            self.pipe.send(Sign.RESET if with_reset else Sign.END)

    def release(self) -> None:
        """Release the protocol of a process that is dead. The other end keeps a reference to this end for as long as it
        has not learned of the death.
        """
        assert not self.process.is_alive
        self._protocol = None

    def vanish(self) -> None:
        """Drop the bytes that are not sent yet: the host has lost its power."""
        self._is_lost = True
        self.host.transports.pop(self, None)
        self._unread.clear()
