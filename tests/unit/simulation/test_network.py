"""The simulated network delivers sent bytes completely and in order, or the stream breaks; links can have faults."""

import asyncio

import pytest
from tests.unit.simulation.worlds import play

from oncelog_simulation.network import HostNetwork


class Peer(asyncio.Protocol):
    """Records received bytes; with `echo` it also sends them back."""

    def __init__(self, *, echo=False):
        self.heard = bytearray()
        self.pieces = 0
        self.lost = asyncio.get_running_loop().create_future()
        self.echo = echo
        self.paused = 0

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.heard += data
        self.pieces += 1
        if self.echo:
            self.transport.write(data)

    def pause_writing(self):
        self.paused += 1

    def connection_lost(self, exc):
        if not self.lost.done():
            self.lost.set_result(exc)


async def connect(world):
    """Return both ends of a stream from "client" to "server", and their processes."""
    client, server = world.process("client"), world.process("server")
    made = []

    async def serve():
        listening = await HostNetwork(world.network).listen(
            None, 9092, lambda: made.append(Peer()) or made[-1], backlog=10
        )
        await listening.start()

    async def dial():
        _, protocol = await asyncio.get_running_loop().create_connection(Peer, "server", 9092)
        return protocol

    await world.loop.spawn(server, serve())
    near = await world.loop.spawn(client, dial())
    await asyncio.sleep(0.1)
    return near, made[0], client, server


def in_process(world, process, function, *args):
    """Call a function as if a process of the world called it."""

    async def call():
        return function(*args)

    return world.loop.spawn(process, call())


def test_bytes_arrive_in_order_and_cut_anywhere():
    sent = bytes(range(256)) * 2000

    async def scene(world):
        near, far, client, _ = await connect(world)

        def write():
            for begin in range(0, len(sent), 1000):
                near.transport.write(sent[begin : begin + 1000])

        await in_process(world, client, write)
        await asyncio.sleep(5)
        assert bytes(far.heard) == sent
        assert far.pieces > len(sent) // 1000
        assert near.paused, "more than the window of a stream: the writer must have been told to wait"

    play(scene)


def test_a_stream_that_is_closed_ends_behind_its_bytes():
    async def scene(world):
        near, far, client, _ = await connect(world)

        def say_and_close():
            near.transport.write(b"the end")
            near.transport.close()

        await in_process(world, client, say_and_close)
        assert await far.lost is None
        assert far.heard == b"the end"

    play(scene)


def test_a_killed_process_ends_its_streams_behind_what_it_has_sent():
    async def scene(world):
        near, far, client, _ = await connect(world)
        await in_process(world, client, near.transport.write, b"last words")
        world.loop.kill(client)
        world.network.drop_process(world.network.hosts["client"], client)
        await far.lost
        assert far.heard == b"last words"

    play(scene)


def test_peers_notice_a_power_cut_only_after_the_restart():
    async def scene(world):
        near, far, client, server = await connect(world)
        world.loop.kill(server)
        world.network.drop_host(world.network.hosts["server"])
        await in_process(world, client, near.transport.write, b"is anybody there?")
        await asyncio.sleep(3)
        assert not near.lost.done()
        world.network.raise_host(world.network.hosts["server"])
        await asyncio.sleep(3)
        assert isinstance(near.lost.result(), ConnectionResetError)
        assert not far.heard

    play(scene)


def test_bytes_sent_during_a_cut_arrive_when_it_is_mended():
    async def scene(world):
        near, far, client, server = await connect(world)
        world.network.cut("client", "server")
        await in_process(world, client, near.transport.write, b"one way")
        await in_process(world, server, far.transport.write, b"the other")
        await asyncio.sleep(2)
        assert not far.heard
        assert near.heard == b"the other", "only one direction is cut"
        world.network.mend("client", "server")
        await asyncio.sleep(2)
        assert far.heard == b"one way"

    play(scene)


def test_a_stalled_stream_delivers_later_also_when_its_sender_has_closed_it_and_other_streams_go_on():
    async def scene(world):
        near, far, client, _ = await connect(world)
        second = await world.loop.spawn(client, world.loop.create_connection(Peer, "server", 9092))
        await asyncio.sleep(0.1)
        near.transport.pipe.stalled_until = world.now + 5
        await in_process(world, client, near.transport.write, b"late")
        await in_process(world, client, near.transport.close)
        await in_process(world, client, second[1].transport.write, b"on time")
        await asyncio.sleep(2)
        assert not far.heard
        assert second[1].transport.other.get_protocol().heard == b"on time"
        await asyncio.sleep(4)
        assert far.heard == b"late"

    play(scene)


def test_a_long_cut_breaks_the_stream_at_both_ends():
    async def scene(world):
        near, far, _, _ = await connect(world)
        world.network.cut("client", "server")
        await asyncio.sleep(60)
        assert isinstance(near.lost.result(), TimeoutError)
        assert isinstance(far.lost.result(), TimeoutError)

    play(scene)


def test_connecting_to_a_port_that_nobody_has_is_refused_and_over_a_cut_it_takes_long():
    async def scene(world):
        client, _ = world.process("client"), world.process("server")
        with pytest.raises(ConnectionRefusedError):
            await world.loop.spawn(client, world.loop.create_connection(Peer, "server", 1))
        world.network.cut("client", "server")
        began = world.now
        with pytest.raises(TimeoutError):
            await world.loop.spawn(client, world.loop.create_connection(Peer, "server", 1))
        assert world.now - began > 10

    play(scene)
