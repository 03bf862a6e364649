"""Brokers that are only registered in a metadata tree in memory, and the controllers that decide about their
partitions.
"""

from __future__ import annotations

from typing import Any

from tests.support.shared_tree import SharedTree, TreeSession

from oncelog_broker.controller.candidate_questions import CandidateQuestions
from oncelog_broker.controller.leadership import claim_controllership
from oncelog_broker.controller.partitions import PartitionController
from oncelog_broker.metadata.membership.registration import register_broker
from oncelog_broker.metadata.model import reader
from oncelog_broker.metadata.model.payloads import BrokerRegistration, Endpoint


class ControlledBrokers:
    """A metadata tree with one session for each broker, and one session through which the test reads the tree."""

    def __init__(self) -> None:
        self.shared = SharedTree()
        self.admin = self.shared.connect()
        self.sessions: dict[int, TreeSession] = {}

    async def start(self, broker: int, **registration: Any) -> TreeSession:
        session = self.sessions[broker] = self.shared.connect()
        endpoints = (Endpoint("PLAINTEXT", "h", broker),)
        await register_broker(session, broker, BrokerRegistration(endpoints, **registration))
        return session

    def stop(self, broker: int) -> None:
        self.sessions.pop(broker).expire()

    async def control(self, broker: int, questions: CandidateQuestions | None = None) -> PartitionController:
        """Make this broker the only controller, and return its controller object."""
        claimed = await claim_controllership(self.sessions[broker], broker, now_ms=1)
        assert claimed is not None
        term = PartitionController(self.sessions[broker], claimed, questions=questions)
        await term.read_all()
        return term

    async def states(self, topic: str = "t") -> dict[int, tuple[int, int, tuple[int, ...]]]:
        """Return the leader, leader epoch and ISR of each partition of the topic."""
        image = await reader.read_image(self.admin)
        return {p: (s.leader, s.leader_epoch, s.isr) for p, s in image.topics[topic].partitions.items()}
