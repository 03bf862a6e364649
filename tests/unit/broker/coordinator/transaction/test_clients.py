"""The last client of each transactional id is remembered, and the memory for that is limited."""

from oncelog_broker.coordinator.client import Client
from oncelog_broker.coordinator.transaction.clients import MAX_CLIENT_ID_CHARS, MAX_CLIENTS, LastClients


def test_the_last_client_of_a_transactional_id_is_known() -> None:
    clients = LastClients()
    assert clients.of("t") is None
    clients.note("t", Client("old", "/10.0.0.1"))
    clients.note("t", Client("new", "/10.0.0.2"))
    assert clients.of("t") == Client("new", "/10.0.0.2")


def test_neither_many_clients_nor_long_names_fill_the_memory() -> None:
    clients = LastClients()
    for number in range(MAX_CLIENTS):
        clients.note(f"t{number}", Client("c" * 30_000, "/10.0.0.1"))
    clients.note("t0", Client("again", "/10.0.0.1"))
    clients.note("one more", Client("new", "/10.0.0.1"))
    assert clients.of("t1") is None
    assert clients.of("t0") == Client("again", "/10.0.0.1")
    assert clients.of("t2") == Client("c" * MAX_CLIENT_ID_CHARS, "/10.0.0.1")
