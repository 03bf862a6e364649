"""`oncelog dump` prints the lines of Kafka's tool for files that the tests build, and reports each damage with its
position.
"""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from oncelog_broker.dump.command import dump
from oncelog_broker.log.segments.offset_index import ENTRY as OFFSET_ENTRY
from oncelog_broker.log.segments.time_index import ENTRY as TIME_ENTRY
from oncelog_protocol.records.builder import build_batch
from oncelog_protocol.records.compression import Compression
from oncelog_protocol.records.record import Record

GOLDEN = """\
Dumping LOG
Log starting offset: 100
baseOffset: 100 lastOffset: 101 count: 2 baseSequence: -1 lastSequence: -1 producerId: -1 producerEpoch: -1 \
partitionLeaderEpoch: 3 isTransactional: false isControl: false deleteHorizonMs: OptionalLong.empty position: 0 \
CreateTime: 1001 size: 92 magic: 2 compresscodec: none crc: CRC isvalid: true
| offset: 100 CreateTime: 1000 keySize: 3 valueSize: 5 sequence: -1 headerKeys: [h1,h2] key: key payload: value
| offset: 101 CreateTime: 1001 keySize: -1 valueSize: -1 sequence: -1 headerKeys: []
baseOffset: 102 lastOffset: 103 count: 2 baseSequence: 5 lastSequence: 6 producerId: 7 producerEpoch: 1 \
partitionLeaderEpoch: 3 isTransactional: true isControl: false deleteHorizonMs: OptionalLong.empty position: 92 \
CreateTime: 2001 size: 81 magic: 2 compresscodec: none crc: CRC isvalid: true
| offset: 102 CreateTime: 2000 keySize: 2 valueSize: 1 sequence: 5 headerKeys: [] key: k0 payload: a
| offset: 103 CreateTime: 2001 keySize: 2 valueSize: 1 sequence: 6 headerKeys: [] key: k1 payload: b
baseOffset: 104 lastOffset: 104 count: 1 baseSequence: -1 lastSequence: -1 producerId: 7 producerEpoch: 1 \
partitionLeaderEpoch: 3 isTransactional: true isControl: true deleteHorizonMs: OptionalLong.empty position: 173 \
CreateTime: 3000 size: 78 magic: 2 compresscodec: none crc: CRC isvalid: true
| offset: 104 CreateTime: 3000 keySize: 4 valueSize: 6 sequence: -1 headerKeys: [] endTxnMarker: COMMIT \
coordinatorEpoch: 9
"""


def run(*arguments: object) -> Result:
    return CliRunner().invoke(dump, [str(argument) for argument in arguments])


def lines(result: Result) -> list[str]:
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()[1:]


def test_s57_print_data_log_shows_batches_and_records(segment: Path):
    result = run(segment, "--print-data-log")
    assert result.exit_code == 0
    assert re.sub(r"crc: \d+", "crc: CRC", result.output.replace(str(segment), "LOG")) == GOLDEN


def test_s57_batches_alone_and_deep_iteration(segment: Path):
    assert [line.split()[1] for line in lines(run(segment))[1:]] == ["100", "102", "104"]
    deep = lines(run(segment, "--deep-iteration"))
    assert "| offset: 102 CreateTime: 2000 keySize: 2 valueSize: 1 sequence: 5 headerKeys: []" in deep


def test_s57_max_bytes_leaves_out_batches_that_do_not_lie_within(segment: Path):
    assert len(lines(run(segment, "--max-bytes", 172))) == 2
    assert len(lines(run(segment, "--max-bytes", 173))) == 3
    assert len(lines(run(segment, "--max-bytes", 0))) == 1


def test_json_has_typed_values_and_keeps_bytes(tmp_path: Path):
    path = tmp_path / f"{0:020}.log"
    records = [Record(0, 5, b"k", b"\xff", []), Record(1, 6, None, b"v", [("h", b"")])]
    path.write_bytes(build_batch(records, base_offset=0, compression=Compression.ZSTD))
    batch, first, second = map(json.loads, run(path, "--json", "--print-data-log").stdout.splitlines())
    assert (batch["kind"], batch["compresscodec"], batch["isvalid"]) == ("batch", "zstd", True)
    assert batch["deleteHorizonMs"] is None
    assert (first["file"], first["kind"], first["key"], first["payload"]) == (
        str(path),
        "record",
        "k",
        {"base64": "/w=="},
    )
    assert second["headerKeys"] == ["h"]
    assert "key" not in second


@pytest.mark.parametrize("cut", [1, 60, 77])
def test_a_cut_batch_is_a_fault_with_its_position(segment: Path, cut: int):
    segment.write_bytes(segment.read_bytes()[:-cut])
    result = run(segment)
    assert result.exit_code == 1
    assert len(result.stdout.splitlines()) == 4
    assert f"position 173: Found {78 - cut} invalid bytes at the end of the file" in result.stderr


def test_a_flipped_bit_is_shown_and_reading_continues(segment: Path):
    data = bytearray(segment.read_bytes())
    data[92 + 70] ^= 1
    segment.write_bytes(data)
    result = run(segment, "--print-data-log")
    assert result.exit_code == 1
    assert result.stdout.count("isvalid: true") == 2
    assert result.stdout.count("isvalid: false") == 1
    assert "position 92: the CRC of the batch is wrong" in result.stderr


def test_offsets_that_go_back_are_a_fault_and_gaps_a_notice(tmp_path: Path, batches: list[bytearray]):
    path = tmp_path / f"{100:020}.log"
    path.write_bytes(batches[0] + batches[2])
    result = run(path, "--deep-iteration")
    assert result.exit_code == 0
    assert "offset 101 is followed by 104" in result.stderr
    path.write_bytes(batches[2] + batches[0])
    result = run(path)
    assert result.exit_code == 1
    assert "position 78: offset 100 follows 104" in result.stderr


def test_no_bytes_make_a_traceback(segment: Path):
    data = segment.read_bytes()
    for at in range(len(data)):
        mutated = bytearray(data)
        mutated[at] ^= 0xFF
        segment.write_bytes(mutated)
        result = run(segment, "--print-data-log")
        assert result.exit_code in (0, 1), result.exception
        # The CRC does not cover the base offset and the leader epoch, so a change of these bytes goes undetected.
        assert result.exit_code == 1 or min((at - start) % 1000 for start in (0, 92, 173)) < 16


def test_s57_offset_index_verify_index_only_and_index_sanity_check(segment: Path):
    index = segment.with_suffix(".index")
    assert lines(run(index)) == ["offset: 103 position: 92", "offset: 104 position: 173"]
    assert lines(run(index, "--verify-index-only")) == []
    assert lines(run(index, "--index-sanity-check")) == [f"{index} passed sanity check."]


@pytest.mark.parametrize(
    ("entries", "fault"),
    [
        ([(3, 92), (5, 173)], "position 8: index offset: 105, log offset: 104"),
        ([(3, 95)], "position 0: index offset: 103, but in the log: "),
        ([(3, 5000)], "position 0: index offset: 103, but in the log: position 5000 is outside of the log's 251 bytes"),
        ([(3, -1)], "position 0: "),
        ([(4, 173), (3, 92)], "position 8: entry (3, 92) follows (4, 173)"),
    ],
)
def test_offset_index_that_contradicts_its_log(segment: Path, entries: list[tuple[int, int]], fault: str):
    index = segment.with_suffix(".index")
    index.write_bytes(b"".join(OFFSET_ENTRY.pack(*entry) for entry in entries))
    result = run(index, "--verify-index-only")
    assert result.exit_code == 1
    assert fault in result.stderr
    assert "offset:" not in result.stdout


def test_s57_time_index_verify_index_only_and_index_sanity_check(segment: Path):
    index = segment.with_suffix(".timeindex")
    assert lines(run(index)) == ["timestamp: 2001 offset: 103", "timestamp: 3000 offset: 104"]
    assert lines(run(index, "--verify-index-only")) == []
    assert lines(run(index, "--index-sanity-check")) == [f"{index} passed sanity check."]


@pytest.mark.parametrize(
    ("entries", "fault"),
    [
        ([(2000, 3)], "position 0: index timestamp: 2000, log timestamp: 2001"),
        ([(2001, 2)], "position 0: indexed offset: 102, found log offset: 103"),
        ([(2001, 3), (4000, 9)], "position 12: indexed offset: 109, but the log ends before"),
        ([(2001, 3), (2001, 4)], "position 12: entry (2001, 4) follows (2001, 3)"),
    ],
)
def test_time_index_that_contradicts_its_log(segment: Path, entries: list[tuple[int, int]], fault: str):
    index = segment.with_suffix(".timeindex")
    index.write_bytes(b"".join(TIME_ENTRY.pack(*entry) for entry in entries))
    result = run(index)
    assert result.exit_code == 1
    assert fault in result.stderr


def test_an_index_alone_or_cut_is_a_fault(segment: Path):
    index = segment.with_suffix(".index")
    index.write_bytes(index.read_bytes()[:9])
    result = run(index, "--index-sanity-check")
    assert result.exit_code == 1
    assert "position 8: 9 bytes are not a multiple of 8" in result.stderr
    segment.unlink()
    result = run(index)
    assert result.exit_code == 1
    assert f"{segment} is missing" in result.stderr
    assert "offset: 103 position: 92" in result.stdout


def test_a_directory_stands_for_its_files(segment: Path):
    directory = segment.parent
    (directory / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n3 100\n")
    (directory / "replication-offset-checkpoint").write_text("0\n1\nt 2 17\n")
    (directory / "partition.metadata").write_text("version: 0\ntopic_id: TbmQk31rQTWXjapmXZPnhg")
    (directory / "meta.properties").write_text("#\nversion=1\nnode.id=1\n")
    (directory / "something.else").write_text("")
    shown = run(directory).stdout.splitlines()
    names = [Path(line.removeprefix("Dumping ")).name for line in shown if line.startswith("Dumping ")]
    assert len(names) == 7
    assert "something.else" not in names
    for line in [
        "epoch: 3 startOffset: 100",
        "topic: t partition: 2 offset: 17",
        "version: 0 topic_id: TbmQk31rQTWXjapmXZPnhg",
        "version: 1 node.id: 1",
    ]:
        assert line in shown


def test_s57_files_are_named_as_for_kafkas_tool(segment: Path):
    index = segment.with_suffix(".index")
    both = run("--files", f"{index},{segment.with_suffix('.timeindex')}")
    assert [line for line in both.stdout.splitlines() if line.startswith("Dumping ")] == [
        f"Dumping {index}",
        f"Dumping {segment.with_suffix('.timeindex')}",
    ]
    assert "'no.log' does not exist" in " ".join(run("--files", "no.log").stderr.split())
    assert "no FILE is named" in run().stderr


def test_a_data_directory_stands_for_its_partitions(tmp_path: Path, segment: Path):
    data = tmp_path / "data"
    partition = data / "orders-0"
    partition.mkdir(parents=True)
    segment.rename(partition / segment.name)
    (data / "meta.properties").write_text("#\nversion=1\nnode.id=1\n")
    (data / "loop").symlink_to(data)
    shown = run(data).stdout.splitlines()
    assert [line for line in shown if line.startswith("Dumping ")] == [
        f"Dumping {data / 'meta.properties'}",
        f"Dumping {partition / segment.name}",
    ]


@pytest.mark.parametrize(
    ("name", "content", "fault"),
    [
        ("leader-epoch-checkpoint", b"0\n2\n0 0\n", "line 2: 2 entries are announced, but 1 found"),
        ("replication-offset-checkpoint", b"0\n1\nt x 5\n", "line 3: "),
        ("recovery-point-offset-checkpoint", b"\xff", "utf-8"),
        ("meta.properties", b"a=\\u00", ""),
        ("something.else", b"", "not a file that dump knows"),
        ("abc.index", b"", "the name of an index is the base offset of its segment"),
    ],
)
def test_other_files_that_are_wrong(tmp_path: Path, name: str, content: bytes, fault: str):
    (tmp_path / name).write_bytes(content)
    result = run(tmp_path / name)
    assert result.exit_code == 1
    assert f"oncelog: {tmp_path / name}: " in result.stderr
    assert fault in result.stderr


def test_a_file_that_does_not_exist_is_wrong_usage(tmp_path: Path):
    assert run(tmp_path / "no.log").exit_code == 2
