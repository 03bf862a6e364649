"""The addresses of a broker's HTTP pages, and the values that are read from the pages."""

from __future__ import annotations

import math

import pytest

from oncelog.cli.broker_http import BrokerPages, Unread, place_of, samples


@pytest.mark.parametrize(
    ("listener", "host", "place"),
    [
        ("0.0.0.0:9404", "broker-1", ("broker-1", 9404)),
        ("[::]:9404", "broker-1", ("broker-1", 9404)),
        ("10.0.0.7:9404", "broker-1", ("10.0.0.7", 9404)),
        ("[fd00::7]:9404", "broker-1", ("fd00::7", 9404)),
        ("9404", "127.0.0.1", ("127.0.0.1", 9404)),
        ("127.0.0.1:9404", "localhost", ("127.0.0.1", 9404)),
    ],
)
def test_pages_are_where_the_listener_says(listener: str, host: str, place: tuple[str, int]) -> None:
    assert place_of(listener, host) == place


@pytest.mark.parametrize(
    ("listener", "why"),
    [
        (None, "http.listener is not set"),
        ("127.0.0.1:9404", "serves only its own machine"),
        ("9404", "serves only its own machine"),
        ("0.0.0.0:0", "set a port"),
        ("nonsense", "set a port"),
    ],
)
def test_a_listener_that_cannot_be_found_says_what_to_do(listener: str | None, why: str) -> None:
    with pytest.raises(Unread, match=why):
        place_of(listener, "broker-1")


def test_samples_are_read_with_their_labels() -> None:
    text = '# HELP a What.\n# TYPE a gauge\na{topic="x\\"y",partition="0"} 1.5\nb 2e3\nnonsense\nc NaN\nd{} 7\ne x\n'
    found = list(samples(text))
    assert [(each.name, each.labels) for each in found[:2]] == [("a", {"topic": 'x\\"y', "partition": "0"}), ("b", {})]
    assert [each.value for each in found[:2]] == [1.5, 2000.0]
    assert math.isnan(found[2].value)
    assert [each.name for each in found] == ["a", "b", "c", "d"]
    pages = BrokerPages("0.1.0", 0.0, 1.0, text)
    assert (pages.value("b"), pages.value("gone")) == (2000.0, None)
    assert len(pages.values("a")) == 1
