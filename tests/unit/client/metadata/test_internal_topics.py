"""Java's string hash, and the partition of an internal topic to which a key belongs (S30). The expected hashes are
Java's; they are published, or computed by hand.
"""

import pytest

from oncelog.metadata.internal_topics import java_string_hash, partition_for


@pytest.mark.parametrize(
    ("text", "hashed"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("polygenelubricants", -(2**31)),
        ("é", 233),
        ("\U0001f600", 1772899),  # two UTF-16 units: D83D DE00
    ],
)
def test_s30_the_partition_follows_javas_string_hash(text, hashed):
    assert java_string_hash(text) == hashed


def test_s30_the_smallest_int_counts_as_zero():
    assert partition_for("polygenelubricants", 50) == 0
    assert partition_for("hello", 50) == 99162322 % 50


def test_s30_ascii_and_utf16_agree():
    def slow(text):
        value = 0
        for unit in text:
            value = (value * 31 + ord(unit)) & 0xFFFFFFFF
        return value - 2**32 if value >= 2**31 else value

    for text in ("group-17", "z" * 100, "ümlaut", "日本語"):
        assert java_string_hash(text) == slow(text)
