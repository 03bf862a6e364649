"""Sends requests of every API at every version, each with one unexpected field or value. `make fuzz` sends more
requests.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path

import pytest
from broker_memory import NEEDS_PROC, BrokerMemory
from broker_process import BrokerFactory
from foreign_clients import eventually
from fuzz import run
from fuzz.__main__ import MAX_GROWTH_MB
from fuzz.cases import Case, cases
from fuzz.encoder import Encoder
from fuzz.plausible import Plausible
from fuzz.run import SETTINGS, Fuzzer
from fuzz.world import World
from honest_prober import MAX_P99_MS, MAX_WORST_MS, HonestProber
from raw_client import frame

from oncelog_broker.server.served import SERVED
from oncelog_protocol.api import ApiKey
from oncelog_protocol.versions import VersionRange

SEED = 8
CASES = 1500
MEASUREMENTS = 3
"""The maximum number of measurements; the test passes at the first measurement within the limits."""
SECONDS = 12.0
"""Limit in seconds: on a busy machine the test sends fewer requests."""
LARGE_BYTES = 50_000
OF_EACH_API = 2
SABOTAGE = """
import asyncio
from oncelog_broker.server.cluster import describe_cluster
from oncelog_broker.server.groups import list_groups
list_groups.handle = lambda request, context: 1 / 0
describe_cluster.handle = lambda request, context: context.in_a_task(asyncio.sleep(3600))
"""


@pytest.fixture
def world() -> World:
    """Return the APIs, topic ids and producers that the fuzzer would otherwise request from a broker."""
    served = {key: served.versions for key, served in SERVED.items()}
    return World(served=served, topic_ids=[bytes(range(16))], producers={"fuzz-tx-0": (7, 0)})


def test_the_encoder_and_the_codec_agree(world: World) -> None:
    rng = random.Random(SEED)
    plausible = Plausible(world, rng)
    for key, version in world.routes() * 3:
        request = plausible.request(key, version)
        assert Encoder(key, version).frame(request, 5, "fuzz") == frame(request, key, version, 5, "fuzz"), request


def test_the_same_seed_makes_the_same_requests(world: World) -> None:
    first, second = (list(islice(cases(world, SEED), 300)) for _ in range(2))
    assert [case.frame for case in first] == [case.frame for case in second]
    assert {(case.key, case.version) for case in first} == set(world.routes())


def test_an_exception_in_a_handler_and_an_answer_that_does_not_come_are_found(
    broker_factory: BrokerFactory, sabotage: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    sabotage(SABOTAGE)
    monkeypatch.setattr(run, "PATIENCE_SECONDS", 1.0)
    broker = broker_factory(SETTINGS).start()
    world = World()
    world.prepare(broker.port)
    world.served = {key: VersionRange(0, 0) for key in (ApiKey.LIST_GROUPS, ApiKey.DESCRIBE_CLUSTER)}
    fuzzer = Fuzzer(broker, world)
    outcome = fuzzer.run(cases(world, SEED), count=4, seconds=SECONDS)

    def is_in_the_log() -> bool:
        fuzzer.read_log("the end")
        return any("in the log" in defect and "ZeroDivisionError" in defect for defect in outcome.defects)

    eventually(is_in_the_log, "the exception is found")
    broker.kill()
    assert any("no answer" in defect and "DESCRIBE_CLUSTER" in defect for defect in outcome.defects)


def test_no_request_is_answered_wrongly(broker_factory: BrokerFactory) -> None:
    broker = broker_factory(SETTINGS).start()
    world = World()
    world.prepare(broker.port)
    outcome = Fuzzer(broker, world).run(cases(world, SEED), count=CASES, seconds=SECONDS)
    assert not outcome.defects
    assert broker.stop() == 0
    assert "Traceback" not in broker.log.read_text()


def the_large(cases: Iterable[Case]) -> Iterator[Case]:
    """Yield the first few large requests of each API. Small requests are omitted, because they delay no other
    client.
    """
    seen: Counter[ApiKey] = Counter()
    for case in cases:
        seen[case.key] += len(case.frame) >= LARGE_BYTES
        if len(case.frame) >= LARGE_BYTES and seen[case.key] <= OF_EACH_API:
            yield case


@NEEDS_PROC
@pytest.mark.measured
@pytest.mark.parametrize("pick", [the_large, pytest.param(iter, marks=pytest.mark.soak)])
def test_no_request_harms_other_clients(
    broker_factory: BrokerFactory, undisturbed_directory: Path, pick: Callable[[Iterable[Case]], Iterator[Case]]
) -> None:
    """While these requests are sent, another client does not wait long, and the broker keeps little memory. Normally
    only long requests are measured; a soak measures all requests.
    """
    for number in range(MEASUREMENTS):
        excesses = excesses_beside_odd_requests(broker_factory, undisturbed_directory / str(number), pick)
        if not excesses:
            break
    assert not excesses


def excesses_beside_odd_requests(
    broker_factory: BrokerFactory, directory: Path, pick: Callable[[Iterable[Case]], Iterator[Case]]
) -> list[str]:
    """Return a list of excessive waits of a client and of excessive memory of the broker; a busy machine may also cause
    them.
    """
    broker = broker_factory(SETTINGS, directory).start()
    with HonestProber(broker) as prober:
        world = World()
        world.prepare(broker.port)
        memory = BrokerMemory(broker.pid)
        before = memory.now()
        outcome = Fuzzer(broker, world).run(pick(islice(cases(world, SEED), CASES)), count=None, seconds=SECONDS)
        waits = prober.stop()
    assert not outcome.defects
    assert outcome.cases
    assert not waits.failures
    growth = memory.now() - before
    slowest = waits.worst_sample()
    during = outcome.case_during(slowest.started, slowest.started + slowest.wall)
    assert broker.stop() == 0
    assert "Traceback" not in broker.log.read_text()
    bounds = {
        f"{growth} MB more": growth >= MAX_GROWTH_MB,
        f"{waits.net.worst:.0f} ms for {slowest.kind}, beside {during}": waits.net.worst > MAX_WORST_MS,
        f"p99: {waits.net}": waits.net.p99 > MAX_P99_MS,
    }
    return [excess for excess, is_exceeded in bounds.items() if is_exceeded]
