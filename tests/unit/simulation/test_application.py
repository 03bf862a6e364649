"""A user's service or application in the simulated world, as in the examples of docs/testing.md."""

from __future__ import annotations

import asyncio
import os

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from examples.simulated_service.billing import INVOICES, ORDERS, bill, bill_carelessly, invoice_for, order_of
from examples.simulated_service.outbox_service import ROWS, CarelessOutbox, Outbox

from oncelog_simulation.application import Service, check_service
from oncelog_simulation.guard import RealAccess
from oncelog_simulation.recorded_application import Application, check_application
from oncelog_testing.history.recorder import History

KILLS = ("kill a client",)


def test_a_correct_service_passes() -> None:
    check_service(Service(bill, ORDERS, INVOICES, order_of, inputs=15), seeds=(1, 2), faults=KILLS)


def test_a_seed_finds_the_bug_of_a_careless_one() -> None:
    careless = Service(bill_carelessly, ORDERS, INVOICES, order_of)
    with pytest.raises(AssertionError, match=r"(?s)Seed \d+: .* violation.*TWICE.*invoice for orders"):
        check_service(careless, seeds=range(1, 6), faults=KILLS)


def test_an_action_that_a_service_never_does_is_reported() -> None:
    async def idle(servers: str) -> None:
        await asyncio.Event().wait()

    with pytest.raises(AssertionError, match="service-1 has not ended"):
        check_service(Service(idle, ORDERS, INVOICES, order_of, inputs=3), seeds=(1,), faults=())


def test_a_service_that_uses_the_real_machine_fails_with_the_call() -> None:
    async def reads_a_file(servers: str) -> None:
        with open("/etc/hostname") as file:  # noqa: ASYNC230 - the access that must fail
            file.read()

    with pytest.raises(RealAccess, match=r"called builtins.open\('/etc/hostname',\)"):
        check_service(Service(reads_a_file, ORDERS, INVOICES, order_of, inputs=3), seeds=(1,), faults=())


async def bill_with_aiokafka(servers: str) -> None:
    """The correct service, with the client of others."""
    producer = AIOKafkaProducer(bootstrap_servers=servers, transactional_id="billing")
    consumer = AIOKafkaConsumer(
        ORDERS,
        bootstrap_servers=servers,
        group_id="billing",
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        enable_auto_commit=False,
    )
    async with producer, consumer:
        while True:
            fetched = await consumer.getmany(timeout_ms=1_000)
            if fetched:
                async with producer.transaction():
                    for record in (record for records in fetched.values() for record in records):
                        await producer.send(INVOICES, invoice_for(record.value))
                    ends = {partition: records[-1].offset + 1 for partition, records in fetched.items()}
                    await producer.send_offsets_to_transaction(ends, "billing")


def test_a_service_may_use_aiokafka() -> None:
    check_service(Service(bill_with_aiokafka, ORDERS, INVOICES, order_of, inputs=10), seeds=(1, 2), faults=KILLS)


def application(outbox: CarelessOutbox) -> Application:
    return Application(outbox.run, {"orders": 1})


def test_a_correct_application_passes() -> None:
    check_application(lambda: application(Outbox()), seeds=range(1, 6))


def test_a_seed_finds_the_bug_of_a_careless_application() -> None:
    with pytest.raises(AssertionError, match=r"(?s)Seed \d+: .* violation.*TWICE.*order"):
        check_application(lambda: application(CarelessOutbox()), seeds=range(1, 31))


def test_each_seed_gets_an_application_of_its_own() -> None:
    made = []

    def make() -> Application:
        made.append(CarelessOutbox())
        return application(made[-1])

    check_application(make, seeds=(1, 2), faults=())
    assert [len(outbox.noted) for outbox in made] == [ROWS, ROWS]


def test_an_application_that_does_not_return_is_reported() -> None:
    async def idle(servers: str, history: History) -> None:
        await asyncio.Event().wait()

    with pytest.raises(AssertionError, match="application has not ended"):
        check_application(lambda: Application(idle, {"orders": 1}), seeds=(1,), faults=())


def test_an_application_that_uses_the_real_machine_fails_with_the_call() -> None:
    async def starts_a_process(servers: str, history: History) -> None:
        os.system("true")  # noqa: ASYNC221 - the access that must fail

    with pytest.raises(RealAccess, match=r"called os.system"):
        check_application(lambda: Application(starts_a_process, {}), seeds=(1,), faults=())
