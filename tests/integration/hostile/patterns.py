"""Sends a regular expression that would take a backtracking engine for ever."""

from __future__ import annotations

from raw_transactions import RawTransactions

from hostile.client import HostileClient
from hostile.scene import Scene
from oncelog_protocol.api import ApiKey
from oncelog_protocol.messages.list_transactions import ListTransactionsRequest


def _one_long_name(scene: Scene, _: int) -> None:
    RawTransactions(scene.client(), "a" * 40).take_over()


def _list(scene: Scene, _: None, size: int) -> str:
    request = ListTransactionsRequest(
        state_filters=[], producer_id_filters=[], duration_filter=-1, transactional_id_pattern="(a|a)*" * size + "b"
    )
    return scene.ask(request, ApiKey.LIST_TRANSACTIONS, 2)


CLIENTS = (HostileClient("a pattern that backtracks", _list, size=1, small=1, prepare=_one_long_name),)
