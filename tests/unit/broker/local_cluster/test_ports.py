from __future__ import annotations

import socket

import pytest

from oncelog_broker.local_cluster import ports
from oncelog_broker.local_cluster.ports import LOOPBACK, NoFreePort, OwnPort, is_free, own_ports


def test_own_ports_follow_one_another_and_a_server_can_listen_there() -> None:
    mine = own_ports(9)
    first = mine[0].number
    assert [each.number for each in mine] == list(range(first, first + 9))
    assert all(is_free(each.number) for each in mine)


def test_a_port_is_nobody_elses_until_its_owner_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    (mine,) = own_ports(1)
    number = mine.number
    monkeypatch.setattr(ports, "RANGE", range(number, number + 1))
    with pytest.raises(OSError, match="in use"):
        OwnPort(number)
    with pytest.raises(NoFreePort):
        own_ports(1)
    del mine
    assert OwnPort(number).number == number


def test_a_port_with_a_listening_server_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    (mine,) = own_ports(1)
    port = mine.number
    del mine
    monkeypatch.setattr(ports, "RANGE", range(port, port + 1))
    with socket.socket() as server:
        server.bind((LOOPBACK, port))
        assert not is_free(port)
        with pytest.raises(NoFreePort, match=f"no 1 consecutive free ports from {port} to {port}"):
            own_ports(1)
    assert [each.number for each in own_ports(1)] == [port]
