"""The CRC-32C of record batches equals known values."""

import crc32c as package

from oncelog_protocol.crc import crc32c


def test_the_checksum_equals_that_of_the_package():
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(b"6789", crc32c(memoryview(b"12345"))) == package.crc32c(b"123456789")
