"""Kafka's Uuid is converted between bytes and text (KIP-516)."""

import pytest

from oncelog_protocol.uuids import ONE_UUID, ZERO_UUID, is_issuable, uuid_from_string, uuid_to_string


@pytest.mark.parametrize(
    ("text", "uuid"),
    [
        ("AAAAAAAAAAAAAAAAAAAAAA", ZERO_UUID),
        ("AAAAAAAAAAAAAAAAAAAAAQ", ONE_UUID),
        ("_____________________w", b"\xff" * 16),
        ("-----------------_____", None),
    ],
)
def test_an_id_is_written_as_text_and_as_bytes(text, uuid):
    if uuid is not None:
        assert uuid_to_string(uuid) == text
        assert uuid_from_string(text) == uuid
        assert uuid_from_string(text + "==") == uuid
    assert len(uuid_from_string(text)) == 16


@pytest.mark.parametrize("text", ["", "short", "A" * 23, "A" * 21 + "+", "A" * 21 + "/", "A" * 21 + " ", "ä" * 22])
def test_other_text_is_refused(text):
    with pytest.raises(ValueError, match="uuid"):
        uuid_from_string(text)


def test_other_lengths_are_refused():
    with pytest.raises(ValueError, match="16 bytes, not 15"):
        uuid_to_string(bytes(15))


def test_reserved_ids_and_those_with_a_leading_dash_are_not_issued():
    assert not is_issuable(ZERO_UUID)
    assert not is_issuable(ONE_UUID)
    assert not is_issuable(b"\xf8" + bytes(15))
    assert is_issuable(b"\xfc" + bytes(15))
