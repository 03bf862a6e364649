"""Lets faults strike the containers while clients write and read."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from foreign_clients import eventually
from recording_clients import LibrdkafkaRecording, Writer

from compose_test.clients import Orders, Reader
from compose_test.images import TOP
from compose_test.proof import check_all, note_content, until_billed
from compose_test.stack import NETWORK, PROJECT, Stack
from oncelog_testing.history.events import Place
from oncelog_testing.history.recorder import History

BROKERS: Final = ("broker-1", "broker-2", "broker-3")
ZOOKEEPERS: Final = ("zookeeper-1", "zookeeper-2", "zookeeper-3")
ADDRESSES: Final = "localhost:9092,localhost:9093,localhost:9094"
"""The addresses of the brokers as the host reaches them."""
ORDERS, INVOICES, NOTES = ([Place(topic, index) for index in range(3)] for topic in ("orders", "invoices", "notes"))
BILLING: Final = f"{PROJECT}-billing"
NOTE_MS: Final = 100
"""Milliseconds for which the producer of notes waits for further notes (linger.ms). This limits the notes to at most a
hundred in a second.
"""
ENOUGH: Final = 5
"""The number of transactions that must be committed during a fault; each transaction writes to all partitions."""


def say(started: float, text: str) -> None:
    print(f"[{time.monotonic() - started:6.1f} s] {text}", flush=True)


class Proof:
    """A run of the test with one compose file; the functions in `steps` cause the faults."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.history = History()
        self._started = time.monotonic()
        self.committed = 0
        self.aborted = 0

    def say(self, text: str) -> None:
        say(self._started, text)

    def run(self) -> None:
        """Run all steps. Raises AssertionError, CalledProcessError."""
        self.come_up("six containers, started at once")
        for topic in ("orders", "invoices", "notes"):
            create = ("oncelog", "topics", "create", topic, "--partitions", "3")
            self.stack.engine("exec", self.stack.container("broker-1"), *create)
        self.stack.until_in_sync(*BROKERS)
        with self.clients("before") as orders:
            self.begin_billing()
            orders.until_more(ENOUGH)
            for what, fault in self.faults():
                self.strike(orders, what, fault)
        self.end_billing()
        self.stack.stop_all(*BROKERS)
        self.stack.down()
        self.say("all brokers have stopped by themselves, all containers are gone: docker compose stop, down")
        self.come_up("and up again with the same volumes")
        with self.clients("after") as orders:
            self.begin_billing()
            orders.until_more(ENOUGH)
        self.conclude()
        self.end_billing()

    def come_up(self, what: str) -> None:
        self.stack.up()
        self.stack.until_in_sync(*BROKERS)
        self.say(f"{what}: all brokers are in the cluster, all replicas in sync")
        self.stack.until_healthy(*ZOOKEEPERS, *BROKERS)
        self.say("all health checks pass")

    @contextmanager
    def clients(self, name: str) -> Iterator[Orders]:
        """Run the clients: orders in transactions, notes by an idempotent producer, and a reader of each topic."""
        with ExitStack() as stack:
            orders = stack.enter_context(Orders(ADDRESSES, self.history, f"orders {name}", ORDERS))
            notes = stack.enter_context(
                LibrdkafkaRecording(ADDRESSES, self.history, f"notes {name}", linger_ms=NOTE_MS)
            )
            stack.enter_context(Writer(notes, *NOTES))
            stack.enter_context(Reader(ADDRESSES, self.history, f"reader {name}", [*ORDERS, *INVOICES, *NOTES]))
            yield orders
        self.committed += orders.committed
        self.aborted += orders.aborted

    def begin_billing(self) -> None:
        """Start the billing inside the network, with the image of the brokers."""
        script = Path(__file__).with_name("inside.py")
        image = self.stack.engine("inspect", "--format", "{{.Image}}", self.stack.container("broker-1")).strip()
        self.stack.engine(
            *("run", "--detach", "--name", BILLING, "--network", NETWORK, "--volume", f"{script}:/inside.py:ro"),
            *("--read-only", "--entrypoint", "python", image, "/inside.py"),
        )

    def end_billing(self) -> None:
        """Stop and remove the billing container, so that it leaves its group, and the network can be removed."""
        self.stack.engine("stop", BILLING)
        self.stack.engine("rm", BILLING)

    def strike(self, orders: Orders, what: str, fault: Callable[[], Callable[[], None]]) -> None:
        """Let a fault last until enough transactions are committed in spite of it; the function that `fault` returns
        ends the fault.
        """
        orders.longest_wait()
        mend = fault()
        orders.until_more(ENOUGH)
        mend()
        self.stack.until_in_sync(*BROKERS)
        orders.until_more(ENOUGH)
        self.say(f"{what}: longest time from one commit to the next {orders.longest_wait():.1f} s")

    def faults(self) -> Iterator[tuple[str, Callable[[], Callable[[], None]]]]:
        stack = self.stack

        def fault(strike: Callable[..., None], mend: Callable[..., None], *services: str):  # type: ignore[no-untyped-def]
            def both() -> Callable[[], None]:
                strike(*services)
                return lambda: mend(*services)

            return both

        for broker in BROKERS:
            yield f"kill -9 of {broker}", fault(stack.kill, stack.start, broker)
        yield "broker-2 is paused", fault(stack.pause, stack.unpause, "broker-2")
        yield "broker-3 is cut off from the network", fault(stack.disconnect, stack.connect, "broker-3")
        yield "kill -9 of zookeeper-1", fault(stack.kill, stack.start, "zookeeper-1")
        yield "zookeeper-2 is paused", fault(stack.pause, stack.unpause, "zookeeper-2")
        yield "kill -9 of the client inside", self.kill_billing
        yield "kill -9 of all brokers", self.kill_all
        for broker in BROKERS:
            yield f"{broker} is stopped and started", fault(stack.stop, stack.start, broker)

    def kill_billing(self) -> Callable[[], None]:
        self.stack.engine("kill", "--signal", "KILL", BILLING)
        return lambda: self.stack.engine("start", BILLING) and None

    def kill_all(self) -> Callable[[], None]:
        self.stack.kill(*BROKERS)
        self.stack.start(*BROKERS)
        return lambda: None

    def conclude(self) -> None:
        until_billed(ADDRESSES, ORDERS, INVOICES, self.history)
        note_content(ADDRESSES, self.history, NOTES)
        check_all(self.history, ORDERS, INVOICES)
        read = sum(len(reading.records) for reading in self.history.readings)
        kept = {
            places[0].topic: sum(len(self.history.final[place]) for place in places)
            for places in (ORDERS, INVOICES, NOTES)
        }
        self.say(f"{self.committed} transactions committed, {self.aborted} aborted, {read} records read meanwhile")
        self.say(f"there in the end, as two libraries agree: {kept}")
        self.say("nothing lost, nothing twice, nothing torn, nothing aborted, all in order")


def single_broker(stack: Stack) -> None:
    """Test docker-compose.single.yml: start it, write and read a record, stop and start it, and read the record
    again.
    """
    started = time.monotonic()
    for is_first in (True, False):
        stack.up()
        eventually(
            lambda: stack.inside("broker", "oncelog", "ping", "--in-sync", "-b", "127.0.0.1:9092"), "it answers", 120
        )
        stack.until_healthy("broker")
        if is_first:
            stack.engine("exec", stack.container("broker"), "sh", "-c", "echo hello | oncelog produce greetings")
        read = stack.inside("broker", "oncelog", "consume", "greetings", "--from", "earliest")
        assert read == "hello\n", read
        stack.down()
    say(started, "one broker by docker-compose.single.yml: a record is there after down and up")


FILES: Final = (TOP / "docker-compose.yml", TOP / "docker-compose.single.yml")
