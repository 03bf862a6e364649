"""Defines a scenario, and runs it on both brokers at the same time."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import ModuleType

from tests.interop.differential.comparison import Difference, compare
from tests.interop.differential.side import ScenarioBroken, Side

from oncelog_protocol.api import ApiKey

Script = Callable[[Side], None]


@dataclass(frozen=True, slots=True)
class Scenario:
    """`name` is "area.what"; a random scenario is a walk: a sequence of random requests from one seed."""

    name: str
    script: Script
    is_random: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of running a scenario on both brokers. `answers` is the number of compared responses."""

    differences: tuple[Difference, ...]
    answers: int
    asked: frozenset[tuple[ApiKey, int]]


def scenario(script: Script) -> Script:
    """Mark a function of a module in scenarios/ as a scenario."""
    script.is_scenario = True  # type: ignore[attr-defined]
    return script


def scenarios_of(module: ModuleType) -> Iterable[Scenario]:
    """Return the scenarios of a module, in the order of their definitions."""
    area = module.__name__.rpartition(".")[2]
    for name, value in vars(module).items():
        if getattr(value, "is_scenario", False):
            yield Scenario(f"{area}.{name}", value)


def play(one: Scenario, kafka_port: int, our_port: int, run: str, kind: type[Side] = Side) -> Outcome:
    """Send the requests of the scenario to both brokers at the same time, and compare the responses. `run` is part of
    all names that the scenario creates, so that the scenario can be repeated on the same brokers. `kind` is the class
    of the two sides (a side is one of the compared brokers).

    Raises ScenarioBroken, with the traceback of the side, if a side could not prepare its state.
    """
    prefix = f"{run}-{one.name.replace('.', '-').replace('_', '-')}-"
    sides = [kind("Apache Kafka", kafka_port, prefix), kind("oncelog", our_port, prefix)]
    failures: list[str] = []

    def play_side(side: Side) -> None:
        try:
            one.script(side)
        except Exception:
            failures.append(f"{side.name}: {traceback.format_exc()}")
        finally:
            side.close()

    threads = [threading.Thread(target=play_side, args=(side,)) for side in sides]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kafka, ours = sides
    differences = tuple(compare(one.name, kafka.transcript, ours.transcript))
    if failures:
        found = "\n".join(str(difference) for difference in differences)
        raise ScenarioBroken("\n".join([f"{one.name} broke off", *failures, "Differences until then:", found]))
    return Outcome(differences, len(ours.transcript), frozenset(ours.asked))
