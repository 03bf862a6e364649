"""Runs the client contract with Java's kafka-clients, of a 3.x and of a 4.x release."""

from __future__ import annotations

import pytest
from client_contract import ClientContract
from line_client import LineClient


@pytest.fixture
def client(java: LineClient) -> LineClient:
    return java


class TestJava(ClientContract):
    pass
