"""The modules that a broker imports before it is ready. Unneeded imports cost some tens of milliseconds per start, and
tools start hundreds of brokers.
"""

import subprocess
import sys

import pytest

from oncelog_broker.coordinator.later_imports import LATER, MODULES_OF_AN_IMPORT

NOT_NEEDED = {
    "argparse",
    "click",
    "crc32c",
    "email",
    "h11",
    "http",
    "importlib.metadata",
    "javaproperties",
    "kazoo",
    "oncelog_broker.log.compaction.compaction",
    "oncelog_broker.security.sasl.jwks",
    "oncelog_broker.security.sasl.scram",
    "oncelog_broker.security.tls.contexts",
    "oncelog_broker.server.net.tls_transport",
    "re2",
    "tomllib",
    "urllib.request",
    "uvicorn",
    "xml",
    "zipfile",
}
COORDINATORS = (
    "oncelog_broker.coordinator.group.",
    "oncelog_broker.coordinator.transaction.",
    "oncelog_broker.coordinator.share.",
    "oncelog_broker.coordinator.runtime",
    "oncelog_broker.sharing",
    "oncelog_protocol.coordinator_records",
)
"""Prefixes of the modules of coordinators."""
MOST_MODULES = 414
"""The number of modules that a broker may import before it listens, modules of Python and libraries included, in
addition to those of uvloop. Raise it only for something that every broker needs before it listens.
"""
BROKER = "import oncelog.cli.main, oncelog_broker.serve, oncelog_broker.broker"


@pytest.fixture(scope="module")
def imported() -> set[str]:
    """The modules of a broker that is about to start, without those that uvloop imports."""
    return printed(f"import sys, uvloop; first = set(sys.modules); {BROKER}; print(*set(sys.modules) - first)")


def printed(program: str) -> set[str]:
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    return set(found.stdout.split())


def test_a_broker_alone_imports_nothing_that_it_does_not_need(imported: set[str]):
    assert not NOT_NEEDED & imported


def test_a_broker_imports_no_coordinator_before_it_listens(imported: set[str]):
    assert not {name for name in imported if name.startswith(COORDINATORS)}


def test_the_number_of_imported_modules_does_not_grow(imported: set[str]):
    assert 300 < len(imported) <= MOST_MODULES


def test_the_handler_of_produce_imports_no_coordinator():
    """The first acknowledged record of a fresh broker."""
    found = printed("import sys, oncelog_broker.server.records.produce; print(*sys.modules)")
    allowed = {"oncelog_broker.coordinator.transaction.metadata", "oncelog_broker.coordinator.transaction.states",
               "oncelog_broker.coordinator.transaction.verification"}  # fmt: skip
    assert {name for name in found if name.startswith(COORDINATORS)} <= allowed


def test_the_later_imports_are_short_and_leave_nothing_out():
    """Each later import loads few modules, and all of them together load compaction and the coordinators."""
    program = (
        f"import sys, importlib; {BROKER}\n"
        f"for name in {LATER!r}:\n"
        "    before = len(sys.modules); importlib.import_module(name); print(len(sys.modules) - before)\n"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    numbers = [int(line) for line in found.stdout.split()]
    assert LATER[-1] == "oncelog_broker.assembly.running_coordinators"
    assert all(0 < number <= MODULES_OF_AN_IMPORT for number in numbers), numbers
