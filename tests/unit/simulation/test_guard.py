"""A simulated world uses no real file, socket or clock, and any access that bypasses the broker's interfaces fails."""

import asyncio
import importlib
import inspect
import os
import pkgutil
import random
import secrets
import socket
import subprocess
import threading
import time
import uuid

import pytest
from tests.unit.simulation.worlds import SmallWorld, play

import oncelog
import oncelog_broker
from oncelog_simulation.clock import WALL_START_MS
from oncelog_simulation.guard import RealAccess, guarded

REAL = {time.time, time.time_ns, time.monotonic, time.monotonic_ns, time.perf_counter, time.sleep, os.urandom}
REAL |= {random.random, random.uniform, random.choice, random.randrange, random.randint, random.shuffle}
BOUND_ON_PURPOSE = {
    "oncelog_broker.runtime.clock.SystemClock.monotonic",  # this class is the real clock
    "oncelog_broker.runtime.tasks.Deadlines.__init__",  # only a default value: `Host.of` passes the host's clock
    "oncelog_broker.observability.loop_watch.LoopWatch.__init__",  # used only by the process `oncelog serve`
}
"""Functions and attributes that refer to a real clock, and that a simulated broker never calls without passing its own
clock.
"""


@pytest.mark.parametrize(
    "touch",
    [
        lambda: open("/etc/hostname"),  # noqa: SIM115 - nothing is opened
        lambda: os.stat("/"),
        lambda: os.listdir("/"),
        lambda: socket.socket(),
        lambda: socket.getaddrinfo("localhost", 1),
        lambda: threading.Thread(target=print).start(),
        lambda: subprocess.run(["true"]),
        lambda: time.sleep(0),
    ],
    ids=["open", "stat", "listdir", "socket", "getaddrinfo", "thread", "process", "sleep"],
)
def test_the_real_machine_is_out_of_reach(touch):
    async def scene(world):
        with pytest.raises(RealAccess):
            touch()

    play(scene)
    os.stat("/")  # afterwards the real machine is accessible again


def test_other_threads_keep_the_real_machine():
    """A thread that an earlier test left running neither ends the simulated run nor draws from the run's random
    numbers.
    """
    asked, may_ask, has_asked = [], threading.Event(), threading.Event()

    def ask():
        may_ask.wait()
        asked.extend((os.stat("/"), socket.getaddrinfo("127.0.0.1", 1), time.time(), os.urandom(4), random.Random()))
        has_asked.set()

    thread = threading.Thread(target=ask)
    thread.start()

    async def scene(world):
        may_ask.set()
        has_asked.wait()
        assert asked[2] > time.time(), "the worlds begin in the past"

    play(scene)
    thread.join()
    assert len(asked) == 5


def test_time_is_the_hosts_and_entropy_the_seeds():
    def seen(seed):
        found = []

        async def work():
            await asyncio.sleep(10)
            found.append((int(time.time()) * 1000, round(time.monotonic()), os.urandom(8), secrets.token_hex(4)))
            found.append((uuid.uuid4(), random.random(), random.Random().random(), random.choice("abc")))

        async def scene(world):
            await world.loop.spawn(world.process("one"), work())

        play(scene, seed)
        return found

    assert seen(1) == seen(1)
    assert seen(1) != seen(2)
    assert seen(1)[0][:2] == (WALL_START_MS + 10_000, 10)


def test_the_broker_is_told_when_it_goes_past_its_seams():
    past = {"__name__": "oncelog_broker.server.somewhere", "time": time, "os": os}
    seam = {"__name__": "oncelog_broker.runtime.entropy", "time": time, "os": os}
    world = SmallWorld(1)
    with guarded(world.loop):
        for call in ("time.time()", "time.monotonic()", "os.urandom(4)"):
            with pytest.raises(RealAccess, match=r"oncelog_broker\.server\.somewhere"):
                eval(call, dict(past))
            eval(call, dict(seam))
    world.end()


def functions_of(package):
    for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if found.name.endswith("__main__") or ".local_cluster" in found.name or ".cli" in found.name:
            continue
        module = importlib.import_module(found.name)
        for name, value in vars(module).items():
            yield f"{module.__name__}.{name}", value
            if inspect.isclass(value) and value.__module__ == module.__name__:
                for inner, attribute in vars(value).items():
                    yield f"{module.__name__}.{name}.{inner}", getattr(attribute, "__func__", attribute)


@pytest.mark.parametrize("package", [oncelog_broker, oncelog], ids=lambda package: package.__name__)
def test_no_module_has_bound_the_real_clock_or_entropy_to_its_own_name(package):
    bound = set()
    for name, value in functions_of(package):
        defaults = [
            *(getattr(value, "__defaults__", None) or ()),
            *(getattr(value, "__kwdefaults__", None) or {}).values(),
        ]
        held = [value, *defaults]
        if any(isinstance(each, type(time.time)) and each in REAL for each in held if each.__hash__):
            bound.add(name)
    assert bound - BOUND_ON_PURPOSE == set()
