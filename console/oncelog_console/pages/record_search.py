"""The form above the records, whose fields also select the records of tails and downloads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from starlette.requests import Request

from oncelog.cli.offsets import AtTime, parse_position
from oncelog.clock import now_ms
from oncelog.cluster import NO_NODE, Topic
from oncelog_console.limits import MAX_PAGE_PARTITIONS, PAGE_RECORDS
from oncelog_console.lookups.wanted import Wanted, WantedHeader
from oncelog_console.pages.page_request import MAX_PARTITION, number_of, partition_in, text_of
from oncelog_console.rendering import Refused
from oncelog_console.values.reader import ReadAs

NEWEST: Final = f"-{PAGE_RECORDS}"
ALL, COMMITTED = "all", "committed"
MAX_SOUGHT_CHARACTERS: Final = 4096


@dataclass(frozen=True, slots=True)
class Asked:
    """The values of the form, as the user has typed them. `partition` is None for all partitions."""

    topic: str
    partition: int | None
    at: str
    show: str
    key: str
    header: str
    value: str
    until: str
    read_as: ReadAs
    cursor: str | None

    @property
    def committed_only(self) -> bool:
        return self.show == COMMITTED

    @property
    def wanted(self) -> Wanted:
        """Return the condition on records; raises Refused if the end of the time range is not a valid time."""
        return Wanted(
            self.committed_only,
            _bytes(self.key) if self.key else None,
            self._header(),
            self._until_ms(),
            self.value,
            self.read_as,
        )

    @property
    def sought_by(self) -> str | None:
        """The only field of the form that narrows the search; None if no field or several fields do."""
        given = [name for name in ("key", "header", "value", "until") if getattr(self, name)]
        return given[0] if len(given) == 1 else None

    @property
    def is_narrow(self) -> bool:
        """Whether one of the rarely used fields is filled in, so that the form shows the rarely used fields."""
        return bool(self.header or self.until or self.read_as is not ReadAs.AUTOMATIC)

    @property
    def query(self) -> dict[str, object]:
        """Return the URL parameters for another page with the same search; the position is not included."""
        return {
            "topic": self.topic,
            "partition": self.partition,
            "show": self.show,
            "key": self.key or None,
            "header": self.header or None,
            "value": self.value or None,
            "until": self.until or None,
            "read": None if self.read_as is ReadAs.AUTOMATIC else self.read_as.value,
        }

    def _header(self) -> WantedHeader | None:
        if not self.header:
            return None
        name, separator, value = self.header.partition("=")
        return WantedHeader(name, _bytes(value) if separator else None)

    def _until_ms(self) -> int | None:
        if not self.until:
            return None
        try:
            position = parse_position(self.until, now_ms())
        except ValueError:
            position = None
        if not isinstance(position, AtTime):
            raise Refused(f"until is a time, such as 2026-01-31T10:00, or an age, such as 5m, not {self.until[:40]!r}")
        return position.timestamp_ms


def asked_by(request: Request) -> Asked:
    """Return the values of the form in a request. Raises Refused."""
    given = request.query_params
    partition = given.get("partition") or None
    sought = {name: given.get(name, "") for name in ("key", "header", "value", "until")}
    for name, text in sought.items():
        if len(text) > MAX_SOUGHT_CHARACTERS:
            raise Refused(f"a {name} that is looked for has {MAX_SOUGHT_CHARACTERS} characters at most")
    return Asked(
        topic=text_of(given.get("topic"), "topic"),
        partition=None if partition is None else number_of(partition, "partition", MAX_PARTITION),
        at=given.get("at", "").strip() or ("earliest" if any(sought.values()) else NEWEST),
        show=COMMITTED if given.get("show") == COMMITTED else ALL,
        key=sought["key"],
        header=sought["header"].strip(),
        value=sought["value"].strip(),
        until=sought["until"].strip(),
        read_as=read_as_of(request),
        cursor=given.get("cursor") or None,
    )


def read_as_of(request: Request) -> ReadAs:
    """Return how values are decoded. Raises Refused."""
    given = request.query_params.get("read") or ReadAs.AUTOMATIC
    try:
        return ReadAs(given)
    except ValueError:
        raise Refused(f"values are read as one of: {', '.join(ReadAs)}") from None


def partitions_read(asked: Asked, topic: Topic) -> list[int]:
    """Return the selected partition, or the first partitions that have leaders. Raises Refused."""
    if asked.partition is None:
        led = [index for index, known in sorted(topic.partitions.items()) if known.leader != NO_NODE]
        return led[:MAX_PAGE_PARTITIONS]
    return [partition_in(topic, asked.partition).index]


def parse_cursor(text: str | None, indexes: list[int]) -> dict[int, int] | None:
    """Parse `0:17,1:4` (partition:offset) for the partitions that the page reads. Raises Refused."""
    if text is None:
        return None
    cursor: dict[int, int] = {}
    for part in text.split(",")[:MAX_PAGE_PARTITIONS]:
        index, _, offset = part.partition(":")
        cursor[number_of(index, "cursor", MAX_PARTITION)] = number_of(offset, "cursor")
    if not set(cursor) <= set(indexes):
        raise Refused("the cursor is of other partitions")
    return cursor


def cursor_text(cursor: dict[int, int]) -> str:
    """Return the text that `parse_cursor` reads."""
    return ",".join(f"{index}:{offset}" for index, offset in sorted(cursor.items()))


def _bytes(text: str) -> bytes:
    return text.encode(errors="replace")
