import subprocess
import sys
import tracemalloc

import cramjam
import pytest

from oncelog_protocol.records.batch import CorruptBatch
from oncelog_protocol.records.compression import (
    XERIAL_HEADER,
    ZSTD_MAGIC,
    Compression,
    RecordsTooLarge,
    compress,
    decompress,
)

CODECS = [Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD]
TEXT = b"The quick brown fox jumps over the lazy dog. " * 2000  # 90 KB, which are several Snappy and LZ4 blocks
LIMIT = 1 << 20


@pytest.mark.parametrize("codec", Compression)
@pytest.mark.parametrize("data", [b"", b"x", TEXT])
def test_data_is_compressed_and_decompressed(codec, data):
    packed = compress(codec, data)
    assert decompress(codec, packed, max_bytes=LIMIT) == data
    assert decompress(codec, memoryview(bytearray(packed)), max_bytes=LIMIT) == data


@pytest.mark.parametrize(("codec", "level"), [(Compression.GZIP, 1), (Compression.LZ4, 9), (Compression.ZSTD, 19)])
def test_the_compression_level_is_used(codec, level):
    data = b" ".join(b"%d" % (n * n * n % 1000) for n in range(20_000))
    packed = compress(codec, data, level)
    assert packed != compress(codec, data)
    assert decompress(codec, packed, max_bytes=LIMIT) == data


@pytest.mark.parametrize("codec", CODECS)
def test_data_beyond_the_first_size_guess_is_decompressed(codec):
    data = bytes(1 << 20)
    assert decompress(codec, compress(codec, data), max_bytes=2 << 20) == data


@pytest.mark.parametrize("codec", CODECS)
def test_the_limit_is_exact(codec):
    packed = compress(codec, TEXT)
    assert len(decompress(codec, packed, max_bytes=len(TEXT))) == len(TEXT)
    with pytest.raises(CorruptBatch, match=r"more than|claims"):
        decompress(codec, packed, max_bytes=len(TEXT) - 1)


def test_uncompressed_data_is_limited_too():
    with pytest.raises(CorruptBatch, match="limit"):
        decompress(Compression.NONE, b"abc", max_bytes=2)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("garbage", [b"", b"\x05", b"garbage, garbage", bytes(range(256))])
def test_garbage_is_corrupt(codec, garbage):
    with pytest.raises(CorruptBatch):
        decompress(codec, garbage, max_bytes=LIMIT)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("cut", [1, 5, 40])
def test_cut_data_is_corrupt(codec, cut):
    with pytest.raises(CorruptBatch):
        decompress(codec, compress(codec, TEXT)[:-cut], max_bytes=LIMIT)


def test_unknown_codec_is_corrupt():
    with pytest.raises(CorruptBatch, match="codec 5"):
        decompress(5, b"", max_bytes=LIMIT)


def test_lz4_frame_is_one_that_java_reads():
    packed = compress(Compression.LZ4, TEXT)
    assert packed[:4].hex() == "04224d18"
    flags = packed[4]
    assert flags >> 6 == 1, "version 01"
    assert flags & 0x20, "blocks are independent: Java's reader refuses linked ones"
    # A block checksum (bit 0x10), which cramjam's compressor adds, is allowed, because Java's reader checks it.
    assert not flags & 0x08, "no content size, which Java's reader skips only in part of its versions"
    assert packed[5] >> 4 in (4, 5, 6, 7), "a block size that exists"
    assert packed[-4:] == bytes(4), "the end mark, with no content checksum behind it"


def test_snappy_is_written_in_xerials_framing():
    packed = compress(Compression.SNAPPY, TEXT)
    assert packed[:16].hex() == "82534e4150505900" + "00000001" + "00000001"
    first_block_size = int.from_bytes(packed[16:20], "big")
    assert cramjam.snappy.decompress_raw_len(packed[20 : 20 + first_block_size]) == 32 * 1024


def test_snappy_has_the_known_bytes():
    block = bytes.fromhex("0510") + b"hello"  # length 5, then a literal of 5 bytes
    framed = XERIAL_HEADER + b"\x00\x00\x00\x07" + block
    assert decompress(Compression.SNAPPY, framed, max_bytes=5) == b"hello"
    assert decompress(Compression.SNAPPY, framed + framed[16:], max_bytes=10) == b"hellohello"
    assert compress(Compression.SNAPPY, b"hello") == framed
    assert decompress(Compression.SNAPPY, block, max_bytes=5) == b"hello", "raw, as some clients write it"


@pytest.mark.parametrize(
    "framed",
    [
        XERIAL_HEADER[:12],
        XERIAL_HEADER + b"\x00\x00",
        XERIAL_HEADER + b"\xff\xff\xff\xff\x05\x10hello",
        XERIAL_HEADER + b"\x00\x00\x00\x08\x05\x10hello",
        XERIAL_HEADER + b"\x00\x00\x00\x07\x06\x10hello",
    ],
)
def test_broken_xerial_framing_is_corrupt(framed):
    with pytest.raises(CorruptBatch):
        decompress(Compression.SNAPPY, framed, max_bytes=LIMIT)


def test_the_limit_holds_over_all_xerial_blocks():
    framed = XERIAL_HEADER + b"\x00\x00\x00\x07\x05\x10hello" * 3
    with pytest.raises(CorruptBatch):
        decompress(Compression.SNAPPY, framed, max_bytes=14)


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4, Compression.ZSTD])
def test_a_bomb_takes_no_more_than_the_limit(codec):
    bomb = compress(codec, bytes(8 << 20))
    limit = 256 * 1024
    tracemalloc.start()
    try:
        with pytest.raises(CorruptBatch):
            decompress(codec, bomb, max_bytes=limit)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2 * limit + 128 * 1024


@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from the kernel")
@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4, Compression.ZSTD])
@pytest.mark.parametrize("fits", [True, False])
def test_decompressed_data_is_in_memory_once(codec, fits):
    """One fetch, or one batch whose records are examined, may use the entire permitted memory, so a second copy would
    exceed the limit.
    """
    code = f"""
import resource
from oncelog_protocol.records.compression import Compression, RecordsTooLarge, compress, decompress
limit = 40 << 20
def peak_kb():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
decompress({int(codec)}, compress(Compression({int(codec)}), bytes(5 << 20)), max_bytes=limit)
bomb = b"".join([compress(Compression({int(codec)}), bytes(4 << 20))] * {9 if fits else 12})
before = peak_kb()
try:
    result = decompress({int(codec)}, bomb, max_bytes=limit)
except RecordsTooLarge:
    result = b""
assert len(result) == {36 << 20 if fits else 0}, len(result)
print((peak_kb() - before) >> 10)
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert int(done.stdout) < 40 + 8


def test_a_snappy_length_field_is_not_believed():
    claims_4_gib = bytes.fromhex("ffffffff0f") + b"\x10hello"
    tracemalloc.start()
    try:
        with pytest.raises(CorruptBatch):
            decompress(Compression.SNAPPY, claims_4_gib, max_bytes=1 << 40)
        with pytest.raises(CorruptBatch):
            decompress(Compression.SNAPPY, claims_4_gib, max_bytes=LIMIT)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 64 * 1024


def test_snappy_at_its_densest_is_below_the_ratio_that_we_allow():
    packed = compress(Compression.SNAPPY, bytes(1 << 20))
    assert decompress(Compression.SNAPPY, packed, max_bytes=1 << 20) == bytes(1 << 20)


def test_cramjam_is_imported_at_first_use_only():
    code = "import sys, oncelog_protocol.records.control; sys.exit('cramjam' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# --- the window of zstd


def zstd_frame(size: int, *, window: int, is_one_segment: bool = False) -> bytes:
    """Return a frame of `size` zero bytes, in blocks of one byte each, whose decoder must remember `window` bytes."""
    if is_one_segment:
        header = bytes([0b1010_0000]) + window.to_bytes(4, "little")
    else:
        header = bytes([0, (window.bit_length() - 11) << 3])
    blocks = bytearray()
    for start in range(0, size, BLOCK):
        length, is_last = min(BLOCK, size - start), start + BLOCK >= size
        blocks += (length << 3 | 1 << 1 | is_last).to_bytes(3, "little") + b"\x00"
    return ZSTD_MAGIC + header + blocks


BLOCK = 128 * 1024
ROOM = 24 << 20


@pytest.mark.parametrize(
    ("window", "allowed"), [(1 << 20, ROOM), (8 << 20, ROOM), (16 << 20, ROOM // 2), (128 << 20, ROOM // 2)]
)
def test_a_zstd_window_beyond_the_usual_takes_its_part_of_what_is_allowed(window: int, allowed: int) -> None:
    """The decoder keeps a copy of its output in the window, so a window of 128 MB would use twice the limit."""
    assert len(decompress(Compression.ZSTD, zstd_frame(allowed, window=window), max_bytes=ROOM)) == allowed
    if allowed < ROOM:
        with pytest.raises(RecordsTooLarge):
            decompress(Compression.ZSTD, zstd_frame(allowed + 1, window=window), max_bytes=ROOM)


def test_the_window_of_a_zstd_frame_of_one_segment_is_all_of_it() -> None:
    small, large = 1 << 20, ROOM // 2 + BLOCK
    assert len(decompress(Compression.ZSTD, zstd_frame(small, window=small, is_one_segment=True), max_bytes=ROOM))
    with pytest.raises(RecordsTooLarge):
        decompress(Compression.ZSTD, zstd_frame(large, window=large, is_one_segment=True), max_bytes=ROOM)


def test_a_large_zstd_window_is_hidden_in_no_second_frame() -> None:
    frames = zstd_frame(BLOCK, window=1 << 20) + zstd_frame(ROOM // 2, window=128 << 20)
    with pytest.raises(RecordsTooLarge):
        decompress(Compression.ZSTD, frames, max_bytes=ROOM)


def test_zstd_frames_with_small_windows_are_as_good_as_one() -> None:
    frames = zstd_frame(BLOCK, window=1 << 20) * 60 + zstd_frame(ROOM - 60 * BLOCK, window=8 << 20)
    assert len(decompress(Compression.ZSTD, frames, max_bytes=ROOM)) == ROOM
    with pytest.raises(RecordsTooLarge):
        decompress(
            Compression.ZSTD, zstd_frame(1, window=1 << 20) * 64 + zstd_frame(ROOM, window=1 << 20), max_bytes=ROOM
        )


def test_with_a_small_limit_a_large_zstd_window_does_not_matter() -> None:
    assert len(decompress(Compression.ZSTD, zstd_frame(1 << 20, window=128 << 20), max_bytes=1 << 20)) == 1 << 20
