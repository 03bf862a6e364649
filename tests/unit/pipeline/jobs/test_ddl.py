"""Schemas that Spark can parse are accepted; others are refused with a description of the mistake."""

from __future__ import annotations

import pytest

from oncelog_pipeline.jobs.ddl import BadDdl, check_ddl

RIGHT = [
    "customer STRING, amount DOUBLE",
    "customer: string, amount: double",
    "a INT NOT NULL COMMENT 'how, many', `odd name` DECIMAL(10, 2)",
    "a ARRAY<STRUCT<b: INT, c: MAP<STRING, ARRAY<BIGINT>>>>, d TIMESTAMP_NTZ",
    "a STRUCT<>, map MAP<STRING, INT>, date DATE, string STRING",
    "a INTERVAL DAY TO SECOND, b STRING COLLATE UTF8_LCASE, c VARCHAR(5), d VARIANT",
    "ARRAY<INT>",
    "MAP<STRING, STRUCT<a: INT>>",
    "BIGINT",
    "DECIMAL(3, 1)",
]


@pytest.mark.parametrize("text", RIGHT)
def test_a_schema_of_spark_is_parsed(text: str) -> None:
    check_ddl(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("amount DUOBLE", "has 'DUOBLE', which is not a type: did you mean DOUBLE?"),
        ("a INT, b ARRAY<STRNG>", "did you mean STRING?"),
        ("a", "has no type after the column 'a'"),
        ("a INT,", "ends where the name of a column is expected"),
        ("a INT b STRING", "has 'b' where ',' is expected"),
        ("a ARRAY<INT", "ends where '>' is expected"),
        ("a ARRAY INT", "has 'INT' where '<' is expected"),
        ("a MAP<INT>", "has '>' where ',' is expected"),
        ("a STRUCT<b: INT", "ends where ',' is expected"),
        ("a DECIMAL(10, 2", "ends where ')' is expected"),
        ("a-b INT", "has '-' where a name, a type or a comma is expected"),
        ("a INT NOT", "ends where 'null' is expected"),
        ("ARRAY<INT>, a INT", "has ',' where it should end"),
        (" ", "is empty"),
    ],
)
def test_an_unparsable_schema_is_reported(text: str, why: str) -> None:
    with pytest.raises(BadDdl) as raised:
        check_ddl(text)
    assert why in str(raised.value)
