"""`oncelog leaders`, tested without a broker."""

import pytest
from click.testing import CliRunner

from oncelog.cli.group import cli
from oncelog.cli.leaders import rows_of
from oncelog.cluster import Broker, Partition, Topic


def test_brokers_are_counted_by_what_they_hold_lead_and_should_lead():
    partitions = {
        0: Partition(0, 1, 5, (1, 2), (1, 2)),
        1: Partition(1, 1, 5, (2, 1), (1,)),
        2: Partition(2, -1, 5, (4,), (4,)),
    }
    rows = rows_of([Broker(3, "h", 1), Broker(1, "h", 1)], [Topic("t", partitions=partitions)])
    assert rows == [
        (-1, 0, 0, 1, 0, 0),
        (1, 2, 2, 2, 1, 0),
        (2, 2, 1, 0, 1, 1),
        (3, 0, 0, 0, 0, 0),
        (4, 1, 1, 0, 1, 1),
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--unclean"], "--unclean may lose records: name the topics or partitions"),
        (["--unclean", "t"], "it needs --yes"),
    ],
)
def test_an_unclean_election_needs_explicit_consent(arguments, message):
    result = CliRunner().invoke(cli, ["leaders", "elect", *arguments])
    assert result.exit_code != 0
    assert message in result.output
