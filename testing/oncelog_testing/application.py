"""The history of an application under test: the inputs and actions that the test recorded, and the final content of its
topics."""

from __future__ import annotations

from collections.abc import Callable, Collection

from oncelog_testing.history.checker import verdict
from oncelog_testing.history.events import Input, Place, Send
from oncelog_testing.history.recorder import History
from oncelog_testing.history.verdict import Verdict
from oncelog_testing.history.violation import Kind
from oncelog_testing.readers import committed_offsets, content

__tracebackhide__ = True  # hides this module in the traceback of a failed test

WRITER = "the writer of the inputs"


class ApplicationHistory(History):
    """A `History` that also reads the final content of topics. `bootstrap_servers` returns the brokers' addresses; it
    is called when they are first needed.
    """

    def __init__(self, bootstrap_servers: Callable[[], str]) -> None:
        super().__init__()
        self._bootstrap_servers = bootstrap_servers
        self._found: list[Send] = []
        """The records that `read_processed` has found in the output topic, and that the test has not recorded as sends
        itself.
        """

    def read(self, *topics: str) -> None:
        """Read the final content of these topics. Raises StillOpen or KafkaError."""
        for place, records in content(self._bootstrap_servers(), topics).items():
            self.finally_holds(place, records)

    def read_processed(
        self,
        source: str,
        into: str,
        made_of: Callable[[bytes], bytes | None],
        *,
        group_id: str | None = None,
        application: str = "the application",
    ) -> None:
        """Read both topics, and check that each record in `source` has exactly one record in `into`, in the same order.

        `made_of` returns the input value of an output value; a result of None means that the output was made from no
        input. Input values must be unique. `group_id`: expect outputs only for inputs that this group has committed;
        None expects outputs for all inputs. Raises ValueError, StillOpen or KafkaError.
        """
        self._forget_found(source, into)
        self.read(source, into)
        inputs = self._note_inputs(source)
        made: dict[bytes, Place] = {}
        for place in self._places(into):
            for _, value in self.final[place]:
                made.setdefault(value, place)
        sends: list[tuple[Input, Send]] = []
        for value, place in made.items():
            original = made_of(value)
            if original is not None and original in inputs:
                where, offset = inputs[original]
                send = Send(f"{application}, of {where}", place, value)
                sends.append((Input(group_id or application, where, offset), send))
        for made_from, send in sorted(sends, key=lambda each: each[0]):  # sort the outputs by the order of their inputs
            send.made_of = made_from
            self._note_found(send)
        committed = committed_offsets(self._bootstrap_servers(), group_id) if group_id is not None else None
        for place in self._places(source):
            end = self.final[place][-1][0] + 1 if self.final[place] else 0
            due = end if committed is None else committed.get(place, 0)
            self.finally_processed(group_id or application, place, due)

    def verdict(self, *, apart_from: Collection[Kind] = ()) -> Verdict:
        """Return the verdict on the history; `apart_from`: kinds of violations that the test's fault may cause and that
        are ignored. Raises ValueError.
        """
        return verdict(self, apart_from=apart_from)

    def check(self, *, apart_from: Collection[Kind] = ()) -> None:
        """Check the history. Raises AssertionError with the verdict unless every record exists exactly once."""
        found = self.verdict(apart_from=apart_from)
        if not found:
            raise AssertionError(str(found))

    def _places(self, topic: str) -> list[Place]:
        return sorted(place for place in self.final if place.topic == topic)

    def _note_inputs(self, source: str) -> dict[bytes, tuple[Place, int]]:
        """Record the inputs; returns their positions by value. Inputs that the test did not record come from another
        writer, and are not checked.
        """
        noted = {send.value for send in self.sends}
        found: dict[bytes, tuple[Place, int]] = {}
        for place in self._places(source):
            for offset, value in self.final[place]:
                if value in found:
                    raise ValueError(f"two inputs have the value {value!r}: each needs one of its own")
                found[value] = place, offset
                if value not in noted:
                    self._note_found(Send(WRITER, place, value))
        return found

    def _note_found(self, send: Send) -> None:
        self.sends.append(send)
        self._found.append(send)

    def _forget_found(self, *topics: str) -> None:
        """Drop the results of an earlier read of the same topics."""
        old = {id(send) for send in self._found if send.place.topic in topics}
        self.sends = [send for send in self.sends if id(send) not in old]
        self._found = [send for send in self._found if id(send) not in old]
