"""docs/reference/spark-options.md: every option of Spark's Kafka connector with the answer of format("oncelog")."""

from __future__ import annotations

from typing import Final

from docs_site.reference.markdown import cell, code, table
from oncelog_pipeline.options.connector import GROUPS, Answer, ConnectorOption, Side

HEAD: Final = """\
Every option of Spark's own Kafka connector (`format("kafka")`), `kafka.*` keys of Java's consumer and producer
included, and what `format("oncelog")` does with it. **same**: the same name, values and meaning. **differs**: the
meaning is the text. **refused**: `load()` or `save()` fails with that text as the reason; for the sink of a stream the
first batch does, as Spark asks a sink in Python nothing before. An option that is in no table is refused with the
nearest name. Options of our own are in [spark.md](../spark.md).

Spark's configuration `spark.kafka.*` (caches of consumers and producers, delegation tokens) is read by the connector
alone; a source or sink in Python is not told of it, and delegation tokens are not supported.
"""
_SIDES: Final = {Side.SOURCE: "source", Side.SINK: "sink", Side.BOTH: "source, sink"}


def document() -> str:
    parts = ["# Options of Spark's Kafka connector\n", HEAD]
    for title, options in GROUPS.items():
        rows = [[code(each.name), _SIDES[each.side], _answer(each), cell(each.text)] for each in options]
        parts += [f"## {title}\n", table(["Option", "Of", "Answer", "Text"], rows)]
    return "\n".join(parts)


def _answer(option: ConnectorOption) -> str:
    return option.answer.value if option.answer is Answer.SAME else f"**{option.answer.value}**"
