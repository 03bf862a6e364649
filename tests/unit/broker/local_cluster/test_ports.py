from __future__ import annotations

import socket

import pytest

from oncelog_broker.local_cluster import ports
from oncelog_broker.local_cluster.ports import NoFreePort, is_free, reserved_ports


def test_reserved_ports_are_different_and_held_until_the_end() -> None:
    with reserved_ports(9) as numbers:
        assert len(set(numbers)) == 9
        assert not any(is_free(number) for number in numbers)
    assert any(is_free(number) for number in numbers)


def test_where_no_port_is_free_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        monkeypatch.setattr(ports, "RANGE", range(port, port + 1))
        with pytest.raises(NoFreePort, match=f"no 1 free ports from {port} to {port}"), reserved_ports(1):
            pass
