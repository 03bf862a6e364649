import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.connection.framing import SCRATCH_BYTES, FrameReader, FrameTooLarge

LIMIT = 4 * SCRATCH_BYTES


def feed(reader: FrameReader, data: bytes, chunk: int) -> list[bytes]:
    frames: list[bytes] = []
    position = 0
    while position < len(data):
        buffer = reader.get_buffer()
        assert len(buffer) > 0
        size = min(chunk, len(buffer), len(data) - position)
        buffer[:size] = data[position : position + size]
        position += size
        frames += [bytes(frame) for frame in reader.received(size)]
    return frames


def framed(frames: list[bytes]) -> bytes:
    return b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)


@given(st.lists(st.binary(max_size=200), max_size=20), st.integers(1, 300))
def test_frames_come_out_as_they_went_in_however_they_are_cut(frames: list[bytes], chunk: int) -> None:
    assert feed(FrameReader(LIMIT), framed(frames), chunk) == frames


@pytest.mark.parametrize("size", [SCRATCH_BYTES - 4, SCRATCH_BYTES - 3, SCRATCH_BYTES, 2 * SCRATCH_BYTES + 1])
@pytest.mark.parametrize("chunk", [1000, SCRATCH_BYTES, LIMIT])
def test_large_frames_between_small_ones(size: int, chunk: int) -> None:
    frames = [b"a", bytes(size), b"", b"b" * size, b"c"]
    assert feed(FrameReader(LIMIT), framed(frames), chunk) == frames


def test_a_frame_does_not_change_when_more_is_received() -> None:
    reader = FrameReader(LIMIT)
    buffer = reader.get_buffer()
    buffer[:5] = framed([b"x"])
    (frame,) = reader.received(5)
    reader.get_buffer()[:5] = framed([b"y"])
    reader.received(5)
    assert bytes(frame) == b"x"


@pytest.mark.parametrize("size", [-1, LIMIT + 1, 0x48545450])
def test_a_size_that_cannot_be_is_refused_before_memory_is_taken(size: int) -> None:
    reader = FrameReader(LIMIT)
    reader.get_buffer()[:4] = size.to_bytes(4, "big", signed=True)
    with pytest.raises(FrameTooLarge):
        reader.received(4)
