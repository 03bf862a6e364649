import pytest

from oncelog.connection.versions import VersionTable, next_try
from oncelog.errors import KafkaError, UnsupportedVersion
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from oncelog_protocol.messages.fetch import FetchRequest
from oncelog_protocol.messages.metadata import MetadataRequest
from oncelog_protocol.messages.produce import ProduceRequest


def response(*ranges: tuple[int, int, int], error_code: int = 0) -> ApiVersionsResponse:
    keys = [ApiVersionsResponse.ApiVersion(api_key=k, min_version=low, max_version=high) for k, low, high in ranges]
    return ApiVersionsResponse(error_code=error_code, api_keys=keys)


def test_the_highest_common_version_is_chosen() -> None:
    table = VersionTable(response((3, 0, 5), (0, 0, 99), (1, 4, 18)))
    assert table.choose(MetadataRequest) == 5
    assert table.choose(ProduceRequest) == 12  # the client's highest version: later versions name topics by id
    assert table.choose(FetchRequest) == 12


@pytest.mark.parametrize("ranges", [(0, 0, 2), (0, 14, 20)])
def test_disjoint_version_ranges_are_an_error(ranges: tuple[int, int, int]) -> None:
    with pytest.raises(UnsupportedVersion, match=r"ProduceRequest: the broker has versions .* this client 3-12"):
        VersionTable(response(ranges)).choose(ProduceRequest)


def test_an_api_unknown_to_the_broker_is_an_error() -> None:
    table = VersionTable(response())
    assert not table.supports(MetadataRequest)
    with pytest.raises(UnsupportedVersion, match="does not have MetadataRequest"):
        table.choose(MetadataRequest)


def test_an_answer_ends_the_tries() -> None:
    assert next_try(response(), 3) is None


@pytest.mark.parametrize(("broker_max", "tried", "expected"), [(2, 3, 2), (0, 3, 0), (5, 3, 2), (None, 3, 0)])
def test_the_next_try_has_the_version_named_by_the_broker(broker_max: int | None, tried: int, expected: int) -> None:
    ranges = [] if broker_max is None else [(18, 0, broker_max)]
    assert next_try(response(*ranges, error_code=ErrorCode.UNSUPPORTED_VERSION), tried) == expected


@pytest.mark.parametrize(("code", "tried"), [(ErrorCode.UNSUPPORTED_VERSION, 0), (ErrorCode.INVALID_REQUEST, 3)])
def test_a_broker_that_refuses_api_versions_is_an_error(code: int, tried: int) -> None:
    with pytest.raises(KafkaError, match="refuses to list"):
        next_try(response(error_code=code), tried)


def test_we_name_ourselves_as_brokers_accept_it() -> None:
    from oncelog.connection.versions import api_versions_request

    request = api_versions_request()
    assert isinstance(request, ApiVersionsRequest)
    assert request.client_software_name == "oncelog"
