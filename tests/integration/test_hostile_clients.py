"""A little of what each hostile client does, and an honest client that must not notice. `make hostile` does all."""

from __future__ import annotations

from pathlib import Path

import pytest
from broker_memory import NEEDS_PROC
from hostile.client import HostileClient
from hostile.clients import CLIENTS
from hostile.run import BRIEF, THOROUGH, run
from hostile.table import row
from hostile.verdict import is_doubtful, problems

PACES = (BRIEF, THOROUGH, THOROUGH)
"""Of measurements, at most so many: the least that was measured counts."""
SMALL = [client for client in CLIENTS if client.small is not None]


@NEEDS_PROC
@pytest.mark.measured
@pytest.mark.parametrize("client", SMALL, ids=lambda client: client.name.replace(" ", "-"))
def test_an_honest_client_does_not_notice(client: HostileClient, undisturbed_directory: Path) -> None:
    assert client.small is not None
    for number, pace in enumerate(PACES):
        directory = undisturbed_directory / str(number)
        directory.mkdir()
        measured = run(client, directory, client.small, pace=pace)
        if not is_doubtful(measured):
            break
    assert not problems(measured), row(measured)


def test_each_client_has_a_name_of_its_own() -> None:
    assert len({client.name for client in CLIENTS}) == len(CLIENTS)
