"""A job file is parsed strictly: a mistake is reported with its line, the purpose of the key, and the nearest valid
key.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from oncelog_pipeline.jobs.job import Input, Job, Output, Transform, Trigger
from oncelog_pipeline.jobs.job_file import job_from_toml, read_job
from oncelog_pipeline.jobs.keys import TABLES_OF_KEYS, JobError
from oncelog_pipeline.values.format import ValueFormat

SERVERS = "127.0.0.1:9092"
SMALL = """
[input]
bootstrap = "127.0.0.1:9092"
topics = ["orders"]

[output]
topic = "bills"

[checkpoint]
location = "checkpoints/bills"
"""


def read_nothing(name: str) -> str:
    raise FileNotFoundError(2, "No such file or directory", name)


def job(text: str, read: object = read_nothing) -> Job:
    return job_from_toml(text, "job.toml", "/jobs", read)  # type: ignore[arg-type]


def refusal(text: str) -> str:
    with pytest.raises(JobError) as raised:
        job(text)
    return str(raised.value)


def test_omitted_keys_have_defaults() -> None:
    source = {"kafka.bootstrap.servers": SERVERS, "subscribe": "orders", "startingOffsets": "earliest"}
    assert job(SMALL) == Job(
        "job",
        (Input("input", source),),
        Transform(),
        Output({"kafka.bootstrap.servers": SERVERS, "topic": "bills"}),
        "/jobs/checkpoints/bills",
        Trigger(),
        {},
        "/jobs",
    )


def test_every_key_can_be_given() -> None:
    text = """
        name = "bills"
        [[input]]
        bootstrap = "a:1"
        topics = ["x", "y"]
        starting = '{"x":{"0":5},"y":{"0":-2}}'
        view = "orders"
        headers = true
        key.format = "string"
        [input.value]
        schema = "id LONG"
        invalid = "null"
        [input.options]
        maxOffsetsPerTrigger = 1000
        failOnDataLoss = false
        kafka.fetch.max.bytes = 1000000
        [[input]]
        bootstrap = "a:1"
        pattern = "rate-.*"
        view = "rates"
        value = {format = "avro", schema_file = "rate.avsc", registry = "schemas"}
        [transform]
        file = "bills.sql"
        [output]
        topic = "bills"
        delivery = "at-least-once"
        mode = "update"
        value.format = "json"
        [output.options]
        kafka.compression.type = "zstd"
        [checkpoint]
        location = "s3a://bucket/bills"
        [trigger]
        interval = "10 seconds"
        [spark]
        spark.master = "local[2]"
        "spark.sql.shuffle.partitions" = 4
    """
    files = {"/jobs/bills.sql": "SELECT 1", "/jobs/rate.avsc": '"long"'}
    made = job(text, files.__getitem__)
    orders, rates = made.inputs
    assert orders.options == {
        "kafka.bootstrap.servers": "a:1",
        "subscribe": "x,y",
        "startingOffsets": '{"x":{"0":5},"y":{"0":-2}}',
        "includeHeaders": "true",
        "maxOffsetsPerTrigger": "1000",
        "failOnDataLoss": "false",
        "kafka.fetch.max.bytes": "1000000",
    }
    assert orders.key == ValueFormat("string")
    assert orders.value == ValueFormat("json", "id LONG", fails_if_invalid=False)
    assert rates.options["subscribePattern"] == "rate-.*"
    assert "stateTopic" not in rates.options
    assert rates.value == ValueFormat("avro", '"long"', is_framed=True, registry="/jobs/schemas")
    assert made.transform == Transform(sql="SELECT 1")
    assert made.output.options == {
        "kafka.bootstrap.servers": "a:1",
        "topic": "bills",
        "delivery": "at-least-once",
        "kafka.compression.type": "zstd",
    }
    assert (made.output.mode, made.output.value.format) == ("update", "json")
    assert made.checkpoint == "s3a://bucket/bills"
    assert made.trigger == Trigger("10 seconds")
    assert made.spark == {"spark.master": "local[2]", "spark.sql.shuffle.partitions": "4"}


def test_a_parquet_job_is_parsed() -> None:
    text = SMALL.replace(
        'topic = "bills"', 'parquet = "lake/bills"\npartition_by = ["day"]\noptions.compression = "zstd"'
    )
    assert job(text).output == Output({"compression": "zstd"}, "/jobs/lake/bills", ("day",))


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        # an unknown key: the error has the nearest key, its purpose, and the line
        ("topics =", "topcis =", r"line 4: input.topcis .*: did you mean 'topics'\? It names the topics to read"),
        ("[output]", "[ouptut]", r"line 6: ouptut is not a key: did you mean 'output'\? It says where rows go"),
        ("location =", "path =", "checkpoint.path is not a key; valid here: location"),
        ("location =", "topic =", r"checkpoint.topic is not a key of this table: it belongs to \[output\]"),
        ("topics =", 'value = {fromat = "json"}\ntopics =', "line 4: input.value.fromat .* did you mean 'format'"),
        # a value of the wrong type
        ('["orders"]', '"orders"', r'names the topics to read, and must be a list of names, such as \["orders"\]'),
        ('["orders"]', "[]", "input.topics names the topics to read, and must be a list of names"),
        ('topic = "bills"', "topic = 5", "output.topic is the topic to write to, and must be a text, not 5"),
        ('topic = "bills"', f'topic = "{"b" * 40_000}"', r"\[output\]: topic: "),
        ('"bills"', '"bills"\ndelivery = "exactly-onec"', r"line 8: .* one of .*: did you mean 'exactly-once'\?"),
        ('["orders"]', '["orders"]\nstarting = "erliest"', "startingOffsets"),
        ('["orders"]', '["orders"]\nview = "my orders"', "must be a name of letters"),
        ('["orders"]', '["orders"]\nvalue = {schema = "x LONG", format = "avro", schema_file = "x"}', "mean the same"),
        ('["orders"]', '["orders"]\nvalue = {format = "avro"}', r"\[input.value\] needs schema, .* the format is avro"),
        ('["orders"]', '["orders"]\nvalue = {format = "string", schema = "x LONG"}', "but the format is string"),
        ('["orders"]', '["orders"]\nvalue.schema_file = "x.avsc"', "names x.avsc, which cannot be read: No such file"),
        ('["orders"]', '["orders"]\npattern = "o.*"', "input.pattern and topics mean the same"),
        # the options of format("oncelog") are checked, too
        ('["orders"]', '["orders"]\noptions.maxOffsetPerTrigger = 1', "did you mean 'maxOffsetsPerTrigger'"),
        ('["orders"]', '["orders"]\noptions.subscribe = "x"', "input.options.subscribe is set with the key topics"),
        ('["orders"]', '["orders"]\noptions.kafka.fetch.max.byte = 1', "did you mean 'kafka.fetch.max.bytes'"),
        ('topic = "bills"', 'topic = "bills"\noptions.writeld = "x"', "did you mean 'writeId'"),
        # missing keys, and contradictory ones
        ('bootstrap = "127.0.0.1:9092"\n', "", r"\[input\] needs bootstrap, which says where the brokers are"),
        ('topics = ["orders"]\n', "", r"\[input\] must have topics or pattern, which says which topics are read"),
        ('topic = "bills"', "", r"\[output\] must have topic or parquet, which says where rows go"),
        ('location = "checkpoints/bills"', "", "needs location, which says where the progress is kept: exactly once"),
        ('topic = "bills"', 'topic = "bills"\npartition_by = ["x"]', "output.partition_by is for Parquet"),
        ('topic = "bills"', 'parquet = "x"\ndelivery = "at-least-once"', "output.delivery is for topics"),
        ('topic = "bills"', 'parquet = "x"\nmode = "complete"', "output.mode must be append"),
        ('topic = "bills"', 'parquet = "x"\nmode = "update"', "output.mode must be append"),
        ('topic = "bills"', 'topic = "bills"\nmode = "update"', "output.mode update is for a query that aggregates"),
        ('["orders"]', '["orders"]\nvalue = {schema = "amount DUOBLE"}', "did you mean DOUBLE"),
        ("[output]", '[transform]\nfunction = "bills"\n[output]', 'must be "module:function", not'),
        ("[output]", "[trigger]\ninterval = 'often'\n[output]", "must be such as 10 seconds"),
        ("[output]", "[trigger]\ninterval = '1 second'\navailable_now = true\n[output]", "mean the same"),
        ("[output]", '[spark]\nmaster = "local"\n[output]', 'spark.master is not a configuration of Spark'),
        ("[input]", "input = 3\n[inputs]", "input says which topics are read, and must be a table"),
        ("[input]", "[input", "job.toml is not TOML"),
    ],
)  # fmt: skip
def test_a_wrong_key_is_named(old: str, new: str, says: str) -> None:
    assert old in SMALL
    with pytest.raises(JobError, match=says) as raised:
        job(SMALL.replace(old, new, 1))
    assert str(raised.value).startswith("job.toml")


def test_two_inputs_need_names_and_a_query() -> None:
    second = '[[input]]\nbootstrap = "b:1"\ntopics = ["rates"]\n'
    two = SMALL.replace("[input]", "[[input]]") + second
    assert "two are called 'input'" in refusal(two)
    assert "[transform] is missing" in refusal(two + 'view = "rates"\n')
    queried = two + 'view = "rates"\n[transform]\nsql = "SELECT 1"\n'
    assert "[output] needs bootstrap" in refusal(queried)


def test_a_pattern_does_not_mean_where_the_sink_keeps_its_state() -> None:
    told = SMALL.replace('topics = ["orders"]', 'pattern = ".*"') + '[output.options]\nstatetopic = "states"\n'
    assert job(told).inputs[0].options["stateTopic"] == "states"
    own = told + '[input.options]\nSTATETOPIC = "other"\n'
    assert job(own).inputs[0].options["STATETOPIC"] == "other"
    assert "stateTopic" not in job(own).inputs[0].options


def test_every_key_says_what_it_is_for() -> None:
    for table, keys in TABLES_OF_KEYS.items():
        for name, key in keys.items():
            assert key.purpose.split()[0] in {"says", "names", "is", "has"}, f"{table}.{name}"


def test_a_missing_job_file_is_reported() -> None:
    with pytest.raises(JobError, match="cannot be read: No such file"):
        read_job(Path("/nowhere/job.toml"))


def test_a_job_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "nightly.toml"
    path.write_text(SMALL)
    made = read_job(path)
    assert (made.name, made.checkpoint) == ("nightly", str(tmp_path.resolve() / "checkpoints/bills"))


def test_update_is_written_batch_by_batch_with_a_write_id() -> None:
    """Spark supports the output mode update for no sink in Python."""
    text = SMALL.replace("[output]", '[transform]\nsql = "SELECT 1"\n[output]\nmode = "update"')
    assert job(text).output.write_id == "update"
    assert job(text.replace('topic = "bills"', 'topic = "bills"\noptions.writeid = "x"')).output.write_id == "x"
    assert job(SMALL).output.write_id is None
