"""Defines how each fault strikes, and how it is healed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import NamedTuple

from failing_machines import fill_disk, make_room, set_clock
from test_sessions_end import end_session
from tests.support.zookeeper.frames import Direction

from soak.plan import BROKERS, Fault, Strike
from soak.stage import Stage

Struck = AbstractContextManager[None]


class Done(NamedTuple):
    """The times at which a fault really began and ended. They differ from the plan if a process starts slowly, or if
    two faults need the same broker.
    """

    strike: Strike
    began: float
    healed: float


@contextmanager
def killed(stage: Stage, strike: Strike) -> Iterator[None]:
    stage.cluster.kill(*strike.victims)
    try:
        yield
    finally:
        stage.cluster.start(*strike.victims)


@contextmanager
def paused(stage: Stage, strike: Strike) -> Iterator[None]:
    with stage.cluster.paused(strike.victims[0]):
        yield


def held(*pairs: tuple[int, int]) -> Callable[[Stage, Strike], Struck]:
    """Return a fault that delays requests and responses in one direction between victims; `pairs` has two victims for
    each direction, by their positions in the list of victims of the fault.
    """

    def hold(stage: Stage, strike: Strike) -> Struck:
        return stage.network.held(*((strike.victims[one], strike.victims[other]) for one, other in pairs))

    return hold


def cut_off(stage: Stage, strike: Strike) -> Struck:
    (victim,) = strike.victims
    others = [node_id for node_id in BROKERS if node_id != victim]
    return stage.network.held(*((victim, each) for each in others), *((each, victim) for each in others))


def lost(*directions: Direction) -> Callable[[Stage, Strike], Struck]:
    """Return a fault in which packets between a broker and ZooKeeper are lost, and no connection ends."""

    @contextmanager
    def lose(stage: Stage, strike: Strike) -> Iterator[None]:
        proxy = stage.ways_to_zookeeper[strike.victims[0]]
        proxy.lose(*directions)
        try:
            yield
        finally:
            proxy.heal()

    return lose


@contextmanager
def zookeeper_killed(stage: Stage, strike: Strike) -> Iterator[None]:
    number = 1 + strike.victims[0] % stage.ensemble.size
    stage.ensemble.server(number).kill()
    try:
        yield
    finally:
        stage.ensemble.restart(number)


@contextmanager
def zookeeper_paused(stage: Stage, strike: Strike) -> Iterator[None]:
    with ExitStack() as stack:
        for number in {1 + victim % stage.ensemble.size for victim in strike.victims}:
            stage.ensemble.server(number).pause()
            stack.callback(stage.ensemble.server(number).resume)
        yield


@contextmanager
def session_ended(stage: Stage, strike: Strike) -> Iterator[None]:
    end_session(stage.cluster, strike.victims[0])
    yield


@contextmanager
def disk_full(stage: Stage, strike: Strike) -> Iterator[None]:
    data = stage.cluster.brokers[strike.victims[0]].data
    fill_disk(data)
    try:
        yield
    finally:
        make_room(data)


@contextmanager
def clock_jumped(stage: Stage, strike: Strike) -> Iterator[None]:
    data = stage.cluster.brokers[strike.victims[0]].data
    set_clock(data, strike.amount)
    try:
        yield
    finally:
        set_clock(data, 0)


@contextmanager
def rolled(stage: Stage, strike: Strike) -> Iterator[None]:
    """Stop each broker in an orderly way and start it again; each broker must be in sync before the next broker is
    stopped.
    """
    cluster = stage.cluster
    for node_id in strike.victims:
        code = cluster.brokers[node_id].stop()
        assert code == 0, f"broker {node_id} ended with {code}"
        cluster.start(node_id)
        cluster.until_registered(*BROKERS)
        cluster.until_whole(*cluster.topics())
    yield


FAULTS: Mapping[Fault, Callable[[Stage, Strike], Struck]] = {
    Fault.KILL: killed,
    Fault.KILL_TWO: killed,
    Fault.KILL_ALL: killed,
    Fault.PAUSE: paused,
    Fault.ONE_WAY: held((0, 1)),
    Fault.TWO_WAYS: held((0, 1), (1, 0)),
    Fault.CUT_OFF: cut_off,
    Fault.UNHEARD: lost(Direction.REQUESTS),
    Fault.DEAF: lost(Direction.ANSWERS),
    Fault.NO_ZOOKEEPER: lost(),
    Fault.ZOOKEEPER_KILL: zookeeper_killed,
    Fault.ZOOKEEPER_PAUSE: zookeeper_paused,
    Fault.ENSEMBLE_PAUSE: zookeeper_paused,
    Fault.SESSION_END: session_ended,
    Fault.DISK_FULL: disk_full,
    Fault.CLOCK_JUMP: clock_jumped,
    Fault.ROLLING: rolled,
}
OF_ZOOKEEPER = {Fault.ZOOKEEPER_KILL, Fault.ZOOKEEPER_PAUSE, Fault.ENSEMBLE_PAUSE}
OF_THE_NETWORK = {Fault.ONE_WAY, Fault.TWO_WAYS, Fault.CUT_OFF}


class Resources:
    """The parts of the cluster: each broker, the network between the brokers, and the ensemble. Only one fault at a
    time may affect a part.
    """

    def __init__(self) -> None:
        self._locks = {name: threading.Lock() for name in (*map(str, BROKERS), "network", "ensemble")}

    def of(self, strike: Strike) -> list[str]:
        if strike.fault in OF_ZOOKEEPER:
            return ["ensemble"]
        if strike.fault in OF_THE_NETWORK:
            return ["network"]
        if strike.fault is Fault.SESSION_END:  # this fault sends a request to ZooKeeper
            return [str(strike.victims[0]), "ensemble"]
        return sorted(map(str, strike.victims))

    @contextmanager
    def taken(self, strike: Strike) -> Iterator[None]:
        with ExitStack() as stack:
            for name in self.of(strike):
                stack.enter_context(self._locks[name])
            yield


def strike_and_heal(
    stage: Stage, strike: Strike, resources: Resources, is_over: threading.Event, now: Callable[[], float]
) -> Done:
    """Cause a fault, and return when the fault has ended; end the fault early if `is_over` says that the run is
    over.
    """
    with resources.taken(strike):
        began = now()
        with FAULTS[strike.fault](stage, strike):
            is_over.wait(strike.seconds)
        return Done(strike, began, now())
