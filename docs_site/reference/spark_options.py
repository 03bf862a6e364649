"""docs/reference/spark-options.md: every option of Spark's Kafka connector with the answer of format("oncelog")."""

from __future__ import annotations

from typing import Final

from docs_site.reference.markdown import cell, code, table
from oncelog_pipeline.options.connector import GROUPS, Answer, ConnectorOption, Side

HEAD: Final = """\
This page lists every option of Spark's own Kafka connector (`format("kafka")`), including the `kafka.*` keys of Java's
consumer and producer, and how `format("oncelog")` handles it. **same**: the option has the same name, values and
meaning. **differs**: the text describes the meaning. **refused**: `load()` or `save()` fails with the text as the
reason; for the sink of a stream the first batch fails, because Spark does not call a Python sink earlier. An option
that is in no table is refused, and the error suggests the nearest name. [spark.md](../spark.md) describes our own
options.

Only the connector reads Spark's configuration `spark.kafka.*` (caches of consumers and producers, delegation tokens). A
Python source or sink does not get these settings, and delegation tokens are not supported.
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
