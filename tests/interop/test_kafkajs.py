"""kafkajs."""

from __future__ import annotations

import pytest
from client_contract import ClientContract
from line_client import LineClient


@pytest.fixture
def client(kafkajs: LineClient) -> LineClient:
    return kafkajs


class TestKafkajs(ClientContract):
    pass
