import pytest

from oncelog_broker.metadata import paths
from oncelog_broker.metadata.paths import TopicPath


def test_paths_are_kafkas():
    assert paths.broker_id(3) == "/brokers/ids/3"
    assert paths.topic("t") == "/brokers/topics/t"
    assert paths.partition_state("t", 3) == "/brokers/topics/t/partitions/3/state"
    assert paths.topic_config("t") == "/config/topics/t"
    assert paths.broker_config(3) == "/config/brokers/3"
    assert paths.broker_config(None) == "/config/brokers/<default>"


def test_every_persistent_node_comes_after_its_parent():
    made = {""}
    for path in paths.PERSISTENT:
        assert path.rpartition("/")[0] in made
        made.add(path)


@pytest.mark.parametrize(
    ("path", "about"),
    [
        ("/brokers/topics/t", TopicPath("t", None)),
        ("/brokers/topics/t/partitions", TopicPath("t", None)),
        ("/brokers/topics/t/partitions/3", TopicPath("t", None)),
        ("/brokers/topics/t/partitions/3/state", TopicPath("t", 3)),
        ("/brokers/topics/t/partitions/x/state", TopicPath("t", None)),
        ("/brokers/topics", None),
        ("/brokers/ids/3", None),
    ],
)
def test_a_path_is_parsed_to_its_subject(path, about):
    assert paths.parse_topic_path(path) == about
