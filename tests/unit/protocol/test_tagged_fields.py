"""Tagged fields (KIP-482) are counted and sorted, in the compiled codec and in the interpreting one."""

from __future__ import annotations

import pytest

from oncelog_protocol.codec import codec, interpreted_codec
from oncelog_protocol.errors import MalformedMessage
from oncelog_protocol.messages.api_versions import ApiVersionsRequest

SOFTWARE = b"\x02a\x02b"
DECODERS = pytest.mark.parametrize("make", [codec, interpreted_codec])


def tags(*numbers: int) -> bytes:
    """Encode tagged fields with these one-byte numbers, each of them empty."""
    return bytes([len(numbers)]) + b"".join(bytes([number, 0]) for number in numbers)


@DECODERS
def test_unknown_tags_in_order_are_skipped(make):
    message = make(ApiVersionsRequest, 3).decode(SOFTWARE + tags(3, 5, 90))
    assert (message.client_software_name, message.client_software_version) == ("a", "b")


@DECODERS
@pytest.mark.parametrize("numbers", [(5, 5), (5, 3), (0, 1, 0)])
def test_a_tag_that_is_repeated_or_out_of_order_is_malformed(make, numbers):
    with pytest.raises(MalformedMessage, match="out of order"):
        make(ApiVersionsRequest, 3).decode(SOFTWARE + tags(*numbers))


@DECODERS
def test_tags_count_as_elements_before_the_first_is_read(make):
    decoder = make(ApiVersionsRequest, 3)
    decoder.decode(SOFTWARE + tags(1, 2, 3), max_elements=3)
    with pytest.raises(MalformedMessage, match="3 tagged fields"):
        decoder.decode(SOFTWARE + tags(1, 2, 3), max_elements=2)
    with pytest.raises(MalformedMessage, match="10000000 tagged fields"):
        decoder.decode(SOFTWARE + b"\x80\xad\xe2\x04")
