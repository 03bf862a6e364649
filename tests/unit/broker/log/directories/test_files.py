"""The small files of a data directory: checkpoints, leader epochs, partition.metadata and meta.properties."""

import javaproperties
import pytest

from oncelog_broker.log.checkpoints import CheckpointCorrupt, read_offset_checkpoint, write_offset_checkpoint
from oncelog_broker.log.directories.data_directory import DataDirectory
from oncelog_broker.log.directories.meta_properties import (
    MetaProperties,
    MetaPropertiesError,
    read_meta_properties,
    write_meta_properties,
)
from oncelog_broker.log.directories.partition_metadata import PartitionMetadataCorrupt, read_topic_id, write_topic_ids
from oncelog_broker.log.leader_epochs import LeaderEpochs
from oncelog_broker.runtime.disk import RealDisk
from oncelog_protocol.uuids import uuid_from_string

DISK = RealDisk()


class TestOffsetCheckpoints:
    def test_the_file_has_kafkas_bytes(self, tmp_path):
        path = tmp_path / "recovery-point-offset-checkpoint"
        offsets = {("orders", 1): 988, ("orders", 0): 1201, ("a.b_c-d", 10): 0}
        write_offset_checkpoint(DISK, str(path), offsets)
        assert path.read_bytes() == b"0\n3\na.b_c-d 10 0\norders 0 1201\norders 1 988\n"
        assert read_offset_checkpoint(DISK, str(path)) == offsets

    def test_an_absent_checkpoint_is_empty(self, tmp_path):
        assert read_offset_checkpoint(DISK, str(tmp_path / "absent")) == {}

    def test_an_empty_checkpoint_is_written_and_read(self, tmp_path):
        write_offset_checkpoint(DISK, str(tmp_path / "file"), {})
        assert read_offset_checkpoint(DISK, str(tmp_path / "file")) == {}

    @pytest.mark.parametrize(
        ("data", "message"),
        [
            (b"", "line 1: the version"),
            (b"0\n", "line 1: the version"),
            (b"1\n0\n", "line 1: version 1"),
            (b"x\n0\n", "line 1"),
            (b"0\n2\norders 0 1\n", "line 2: 2 entries are announced, but 1 found"),
            (b"0\n0\norders 0 1\n", "line 2"),
            (b"0\n-1\n", "line 2"),
            (b"0\n2\norders 0 1\norders 1\n", "line 4"),
            (b"0\n1\norders 0 1 2\n", "line 3"),
            (b"0\n1\norders 0 x\n", "line 3"),
            (b"0\n1\norders 0 12", "line 3: the line is incomplete"),  # the file is cut: the complete value was 123
            (b"0\n1\norders 0 -1\n", "line 3: a negative"),
            (b"0\n1\norders -1 1\n", "line 3: a negative"),
            (b"0\n1\n\xff 0 1\n", "line 1"),
            (b"0\n1\n" + bytes(12), "line 3"),
        ],
    )
    def test_a_corrupt_file_is_refused(self, tmp_path, data, message):
        path = tmp_path / "file"
        path.write_bytes(data)
        with pytest.raises(CheckpointCorrupt, match=message) as caught:
            read_offset_checkpoint(DISK, str(path))
        assert str(path) in str(caught.value)


class TestLeaderEpochs:
    @pytest.fixture
    def epochs(self, tmp_path):
        made = LeaderEpochs.load(DISK, str(tmp_path / "leader-epoch-checkpoint"))
        for epoch, start in [(2, 0), (4, 10), (7, 30)]:
            made.assign(epoch, start)
        return made

    def test_the_epoch_file_has_kafkas_format(self, epochs, tmp_path):
        path = tmp_path / "leader-epoch-checkpoint"
        assert path.read_bytes() == b"0\n3\n2 0\n4 10\n7 30\n"
        assert LeaderEpochs.load(DISK, str(path)).entries == epochs.entries

    @pytest.mark.parametrize(
        ("epoch", "answer"),
        [
            (-1, (-1, -1)),
            (-2, (-2, 0)),
            (-(2**31), (-(2**31), 0)),
            (0, (0, 0)),
            (1, (1, 0)),
            (2, (2, 10)),
            (3, (2, 10)),
            (4, (4, 30)),
            (6, (4, 30)),
            (7, (7, 55)),
            (8, (-1, -1)),
        ],
    )
    def test_the_end_offset_of_an_epoch_is_found(self, epochs, epoch, answer):
        assert epochs.end_offset_for_epoch(epoch, 55) == answer

    @pytest.mark.parametrize("epoch", [-(2**31), -2, -1, 0, 2**31 - 1])
    def test_the_end_offset_of_an_unknown_epoch_is_undefined(self, epoch):
        assert LeaderEpochs(DISK, "unused", []).end_offset_for_epoch(epoch, 5) == (-1, -1)

    def test_the_epoch_of_an_offset_is_found(self, epochs):
        assert [epochs.epoch_for_offset(offset) for offset in (0, 9, 10, 29, 30, 99)] == [2, 2, 4, 4, 7, 7]
        epochs.truncate_from_start(20)
        assert epochs.epoch_for_offset(19) is None

    def test_assigning_an_epoch_again_changes_nothing(self, epochs):
        before = epochs.entries
        epochs.assign(7, 31)
        assert epochs.entries == before

    @pytest.mark.parametrize(
        ("new", "left"),
        [
            ((8, 30), [(2, 0), (4, 10), (8, 30)]),
            ((5, 40), [(2, 0), (4, 10), (5, 40)]),
            ((1, 0), [(1, 0)]),
            ((7, 20), [(2, 0), (4, 10), (7, 20)]),
        ],
    )
    def test_contradicting_epoch_entries_are_removed(self, epochs, new, left):
        epochs.assign(*new)
        assert list(epochs.entries) == left
        assert epochs.latest_epoch == left[-1][0]

    @pytest.mark.parametrize(
        ("offset", "left"),
        [(30, [(2, 0), (4, 10)]), (31, [(2, 0), (4, 10), (7, 30)]), (10, [(2, 0)]), (0, [])],
    )
    def test_epochs_are_truncated_from_the_end(self, epochs, offset, left):
        epochs.truncate_from_end(offset)
        assert list(epochs.entries) == left

    @pytest.mark.parametrize(
        ("offset", "left"),
        [(0, [(2, 0), (4, 10), (7, 30)]), (10, [(4, 10), (7, 30)]), (15, [(4, 15), (7, 30)]), (99, [(7, 99)])],
    )
    def test_epochs_are_truncated_from_the_start(self, epochs, offset, left):
        epochs.truncate_from_start(offset)
        assert list(epochs.entries) == left

    @pytest.mark.parametrize("data", [b"0\n1\n-1 0\n", b"0\n1\n1 -1\n", b"0\n1\n1\n", b"0\n2\n1 1\n"])
    def test_a_corrupt_file_is_refused(self, tmp_path, data):
        (tmp_path / "file").write_bytes(data)
        with pytest.raises(CheckpointCorrupt):
            LeaderEpochs.load(DISK, str(tmp_path / "file"))


class TestPartitionMetadata:
    TOPIC_ID = uuid_from_string("WsbkLmZVRwqkK4gQkDLWNg")

    def test_the_file_has_kafkas_bytes(self, tmp_path):
        write_topic_ids(DISK, {str(tmp_path): self.TOPIC_ID})
        path = tmp_path / "partition.metadata"
        assert path.read_bytes() == b"version: 0\ntopic_id: WsbkLmZVRwqkK4gQkDLWNg"
        assert read_topic_id(DISK, str(tmp_path)) == self.TOPIC_ID
        path.write_bytes(path.read_bytes() + b"\n")
        assert read_topic_id(DISK, str(tmp_path)) == self.TOPIC_ID

    def test_an_absent_file_is_none(self, tmp_path):
        assert read_topic_id(DISK, str(tmp_path)) is None

    @pytest.mark.parametrize(
        "data",
        [
            b"",
            b"version: 1\ntopic_id: WsbkLmZVRwqkK4gQkDLWNg",
            b"version: 0\ntopic_id: short",
            b"version: 0\n",
            b"junk",
            b"\xff\xfe",
        ],
    )
    def test_a_corrupt_file_is_refused(self, tmp_path, data):
        (tmp_path / "partition.metadata").write_bytes(data)
        with pytest.raises(PartitionMetadataCorrupt, match=r"partition\.metadata"):
            read_topic_id(DISK, str(tmp_path))


class TestMetaProperties:
    def test_meta_properties_are_read_back(self, tmp_path):
        write_meta_properties(DISK, str(tmp_path), node_id=3, cluster_id="abc=", directory_id="dir")
        assert read_meta_properties(DISK, str(tmp_path)) == MetaProperties(3, "abc=", "dir")
        assert b"version=1\n" in (tmp_path / "meta.properties").read_bytes()

    def test_meta_properties_of_kraft_are_read(self, tmp_path):
        text = "#\n#Tue Nov 12 2024\ncluster.id=MkU3OEVBNTcwNTJENDM2Qg\ndirectory.id=xyz\nnode.id=1\nversion=1\n"
        (tmp_path / "meta.properties").write_text(text)
        assert read_meta_properties(DISK, str(tmp_path)) == MetaProperties(1, "MkU3OEVBNTcwNTJENDM2Qg", "xyz")

    def test_meta_properties_of_zookeeper_brokers_are_read(self, tmp_path):
        (tmp_path / "meta.properties").write_text("version=0\nbroker.id=7\ncluster.id=abc\n")
        assert read_meta_properties(DISK, str(tmp_path)) == MetaProperties(7, "abc", None)
        (tmp_path / "meta.properties").write_text("version=0\nbroker.id=7\n")
        assert read_meta_properties(DISK, str(tmp_path)) == MetaProperties(7, None, None)

    @pytest.mark.parametrize("cluster_id", ["abc=", "a b", "#a", "a\\b", "é", "abc-_1"])
    def test_meta_properties_are_what_the_properties_library_reads_and_writes(self, tmp_path, cluster_id):
        write_meta_properties(DISK, str(tmp_path), node_id=3, cluster_id=cluster_id, directory_id="dir")
        text = (tmp_path / "meta.properties").read_text()
        assert javaproperties.loads(text)["cluster.id"] == cluster_id
        assert read_meta_properties(DISK, str(tmp_path)) == MetaProperties(3, cluster_id, "dir")

    @pytest.mark.parametrize(
        "text",
        [
            "version=1\r\nnode.id=1\r\ncluster.id=a\r\n",
            "version = 1\nnode.id : 1\ncluster.id a\n",
            "version=1\nnode.id=1\ncluster.id=\\\n  a",
            "! a\n# b\\\nversion=1\nnode.id=1\ncluster.id=b\ncluster.id=\\u0061",
        ],
    )
    def test_hand_written_meta_properties_are_read(self, tmp_path, text):
        (tmp_path / "meta.properties").write_text(text, newline="")
        assert read_meta_properties(DISK, str(tmp_path)) == MetaProperties(1, "a", None)

    def test_an_absent_file_is_none(self, tmp_path):
        assert read_meta_properties(DISK, str(tmp_path)) is None

    @pytest.mark.parametrize("data", [b"version=2\n", b"version=x\n", b"version=1\nnode.id=x\n", b"\xff"])
    def test_a_corrupt_file_is_refused(self, tmp_path, data):
        (tmp_path / "meta.properties").write_bytes(data)
        with pytest.raises(MetaPropertiesError, match=r"meta\.properties"):
            read_meta_properties(DISK, str(tmp_path))

    def test_a_directory_of_another_broker_or_cluster_is_refused(self):
        mine = MetaProperties(1, "abc", None)
        mine.check_owner("/data", node_id=1, cluster_id="abc")
        mine.check_owner("/data", node_id=1, cluster_id=None)
        MetaProperties(None, None, None).check_owner("/data", node_id=9, cluster_id="abc")
        with pytest.raises(MetaPropertiesError, match="/data belongs to cluster abc, this broker to xyz"):
            mine.check_owner("/data", node_id=1, cluster_id="xyz")
        with pytest.raises(MetaPropertiesError, match=r"set node\.id=1"):
            mine.check_owner("/data", node_id=2, cluster_id="abc")


class Unread(dict[tuple[str, int], int]):
    """The entries of a checkpoint, which must not be read one after another."""

    def items(self):
        raise AssertionError("all entries were read")


def test_new_logs_are_looked_up_in_the_checkpoints_without_reading_all_entries(tmp_path):
    """A directory may have thousands of logs, and opens new logs a few at a time."""
    directory = DataDirectory.open(DISK, str(tmp_path), node_id=1, cluster_id=None)
    try:
        directory._checkpoints["a"] = Unread({("orders", 0): 7})
        directory.drop_from_checkpoints([("payments", 0), ("payments", 1)])
        directory._checkpoints["a"] = {("orders", 0): 7, ("orders", 1): 8}
        directory.drop_from_checkpoints([("orders", 0), ("payments", 1)])
        assert read_offset_checkpoint(DISK, str(tmp_path / "a")) == {("orders", 1): 8}
    finally:
        directory.close(clean=False)
