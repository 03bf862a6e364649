"""Records and offsets are deleted only as specified, and only after a confirmation."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from oncelog.cli.group import cli


@pytest.mark.parametrize(
    ("arguments", "code", "why"),
    [
        (["topics", "delete-records", "orders:0"], 2, "either --before or --all is needed"),
        (["topics", "delete-records", "orders:0", "--before", "3", "--all"], 2, "either --before or --all is needed"),
        (["topics", "delete-records", "orders", "--all"], 2, "names no partition"),
        (["topics", "delete-records", "orders:0", "--all"], 1, "use --yes"),
        (["groups", "delete-offsets", "readers"], 2, "--topic"),
        (["groups", "delete-offsets", "readers", "--topic", "orders"], 1, "use --yes"),
    ],
)
def test_an_incomplete_or_unconfirmed_deletion_is_refused(arguments: list[str], code: int, why: str) -> None:
    told = CliRunner().invoke(cli, arguments)
    assert (told.exit_code, why in told.output) == (code, True), told.output
