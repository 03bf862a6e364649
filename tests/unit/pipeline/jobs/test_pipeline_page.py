"""The examples in docs/pipeline.md are valid, and the page names every key."""

from __future__ import annotations

import re
from pathlib import Path

from oncelog.cli.group import cli
from oncelog_pipeline.jobs.job_file import job_from_toml
from oncelog_pipeline.jobs.keys import TABLES_OF_KEYS

PAGE = (Path(__file__).parents[4] / "docs" / "pipeline.md").read_text(encoding="utf-8")
FREE = {"schema", "schema_file", "registry", "invalid", "framing", "format"}
"""Keys that occur in several tables and that the page explains in its text."""


def test_the_job_can_be_read() -> None:
    job_text, value_table = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    assert job_from_toml(job_text, "bills.toml", "/", lambda name: "").output.options["topic"] == "bills"
    with_avro = re.sub(r"\nvalue = \{format = \"json\", schema.*?\}", "", job_text) + value_table
    assert job_from_toml(with_avro, "bills.toml", "/", lambda name: '"long"').inputs[0].value.format == "avro"


def test_every_key_is_on_the_page() -> None:
    for table, keys in TABLES_OF_KEYS.items():
        if table in ("", "input.key", "input.value", "output.value"):
            continue
        for key in keys:
            assert f"`{table}.{key}`" in PAGE, f"{table}.{key}"
    assert all(f"`{key}" in PAGE or f"{key} =" in PAGE for key in FREE)


def test_every_command_and_option_on_the_page_is_there() -> None:
    for words in re.findall(r"oncelog pipeline (\w+[^\n#`]*)", PAGE):
        name, *rest = words.split()
        group = cli.get_command(None, "pipeline")  # type: ignore[arg-type]
        command = group.commands[name]  # type: ignore[union-attr]
        known = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in rest if word.startswith("--")} <= known, words
