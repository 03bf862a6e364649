"""Runs the contract of all clients with oncelog's own client."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from client_contract import ClientContract
from oncelog_client import Oncelog


@pytest.fixture(scope="module")
def client(address: str) -> Iterator[Oncelog]:
    client = Oncelog(address)
    yield client
    client.close()


class TestOncelog(ClientContract):
    pass
