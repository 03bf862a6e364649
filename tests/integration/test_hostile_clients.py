"""A little of what each hostile client does, and an honest client that must not notice. `make hostile` does all."""

from __future__ import annotations

from pathlib import Path

import pytest
from broker_memory import NEEDS_PROC
from hostile.client import HostileClient
from hostile.clients import CLIENTS
from hostile.pending import PENDING
from hostile.run import run
from hostile.table import row
from hostile.verdict import problems

SMALL = [client for client in CLIENTS if client.small is not None]


def marked(client: HostileClient) -> object:
    marks = [pytest.mark.skip(reason=f"pending: {PENDING[client.name]}")] if client.name in PENDING else []
    return pytest.param(client, id=client.name.replace(" ", "-"), marks=marks)


@NEEDS_PROC
@pytest.mark.parametrize("client", [marked(client) for client in SMALL])
def test_an_honest_client_does_not_notice(client: HostileClient, undisturbed_directory: Path) -> None:
    assert client.small is not None
    measured = run(client, undisturbed_directory, client.small)
    assert not problems(measured), row(measured)


def test_what_is_pending_is_a_client() -> None:
    assert set(PENDING) <= {client.name for client in CLIENTS}
    assert len({client.name for client in CLIENTS}) == len(CLIENTS)
