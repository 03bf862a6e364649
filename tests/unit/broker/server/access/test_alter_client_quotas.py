"""AlterClientQuotas gives a result for each entry, and long entries do not block other clients."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from oncelog_broker.server.access import alter_client_quotas
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse

Entry = AlterClientQuotasRequest.EntryData
MANY = 5000


class Asked:
    """A request context that records where the work would pause for other work."""

    def __init__(self) -> None:
        self.pauses = self.looked = 0
        self.altered: list[Any] = []
        slices = SimpleNamespace(pauses=lambda: SimpleNamespace(here=self._here))
        configs = SimpleNamespace(alter_quotas=self._alter, nodes_of_addresses=self._nodes)
        self.services = SimpleNamespace(slices=slices, configs=configs)

    def may(self, rule: object) -> bool:
        return True

    async def _here(self) -> None:
        self.pauses += 1

    async def _alter(self, entity: Any, change: Any, validate_only: bool, others: Any) -> None:
        self.altered.append((entity, change({"a": "b"})))

    async def _nodes(self, pause: object) -> None:
        self.looked += 1
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the store is away")

    def answer(self, *entries: Entry) -> AlterClientQuotasResponse:
        request = AlterClientQuotasRequest(entries=list(entries), validate_only=True)
        return asyncio.run(alter_client_quotas._alter_all(request, self))  # type: ignore[arg-type]


def test_an_entity_of_very_many_parts_is_not_looked_at_as_a_whole() -> None:
    parts = [Entry.EntityData(entity_type=f"{number}", entity_name="x") for number in range(MANY)]
    (result,) = Asked().answer(Entry(entity=parts, ops=[])).entries
    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert len(result.entity) < 10


def test_very_many_keys_are_gone_through_with_pauses() -> None:
    asked = Asked()
    user = [Entry.EntityData(entity_type="user", entity_name="u")]
    ops = [Entry.OpData(key=f"{number}", value=0.0, remove=True) for number in range(MANY)]
    ops.append(Entry.OpData(key="request_percentage", value=1.0, remove=False))
    (result,) = asked.answer(Entry(entity=user, ops=ops)).entries
    assert result.error_code == ErrorCode.NONE
    assert asked.pauses >= MANY
    assert [settings for _, settings in asked.altered] == [{"a": "b", "request_percentage": "1.0"}]


def test_quotas_of_addresses_that_the_store_cannot_read_fail_alone() -> None:
    named = [("ip", "10.0.0.1"), ("user", "u"), ("ip", "10.0.0.2")]
    entities = [[Entry.EntityData(entity_type=kind, entity_name=name)] for kind, name in named]
    asked = Asked()
    answered = asked.answer(*(Entry(entity=entity, ops=[]) for entity in entities))
    codes = [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT]
    assert [result.error_code for result in answered.entries] == codes
    assert asked.looked == 1, "each of very many would wait for the store"
