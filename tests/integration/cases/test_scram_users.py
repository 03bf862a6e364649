"""Tests many SCRAM users in one request, and long names."""

from __future__ import annotations

from broker_process import BrokerProcess
from raw_client import RawClient

from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import MAX_MESSAGE_CHARS, ErrorCode
from oncelog_protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from oncelog_protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from oncelog_protocol.scram import ScramMechanism

Deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion
MECHANISM = ScramMechanism.SCRAM_SHA_256.value
USERS = 30_000
TIMEOUT_SECONDS = 30.0
"""Limit in seconds for a request that takes half a second; if the broker processed the entire request once for each
user, it would take a minute.
"""


def test_each_user_costs_the_same_however_many_a_request_names(broker: BrokerProcess) -> None:
    deletions = [Deletion(name=f"nobody-{number}", mechanism=MECHANISM) for number in range(USERS)]
    with RawClient(broker.port, TIMEOUT_SECONDS) as client:
        request = AlterUserScramCredentialsRequest(deletions=deletions, upsertions=[])
        results = client.call(request, ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0).results
    assert [result.user for result in results] == [deletion.name for deletion in deletions]
    assert {result.error_code for result in results} == {ErrorCode.RESOURCE_NOT_FOUND}


def test_the_longest_user_name_fits_into_the_answer(broker: BrokerProcess) -> None:
    name = "x" * 32767
    with RawClient(broker.port, TIMEOUT_SECONDS) as client:
        for times, code in ((1, ErrorCode.RESOURCE_NOT_FOUND), (2, ErrorCode.DUPLICATE_RESOURCE)):
            users = [DescribeUserScramCredentialsRequest.UserName(name=name)] * times
            request = DescribeUserScramCredentialsRequest(users=users)
            (result,) = client.call(request, ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0).results
            assert result.error_code == code
            assert result.user == name
            assert len(result.error_message) == MAX_MESSAGE_CHARS
