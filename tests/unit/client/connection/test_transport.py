import asyncio
import socket
from typing import Any

import pytest

from oncelog.address import Address
from oncelog.connection.transport import BrokerConnection, connect
from oncelog.errors import ClientClosed, ConnectionFailed, KafkaError, RequestTimedOut
from oncelog_protocol.api import ApiKey
from oncelog_protocol.messages.api_versions import ApiVersionsRequest
from oncelog_protocol.messages.headers import ResponseHeader
from oncelog_protocol.messages.metadata import MetadataRequest, MetadataResponse

REQUEST = MetadataRequest(topics=[])


async def connected(broker: Any, timeout_s: float = 5.0) -> BrokerConnection:
    address = Address("127.0.0.1", broker.port)
    return await connect(address, client_id="me", request_timeout_s=timeout_s, setup_timeout_s=timeout_s)


async def stopped(server: asyncio.Server) -> None:
    """Stop a server; wait until the server has closed all connections, including connections that a busy machine
    accepts late.
    """
    server.close()
    while serving := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.wait(serving)


async def closed(connection: BrokerConnection) -> None:
    connection.close()
    await connection.wait_closed()


async def test_requests_are_pipelined(fake_broker: Any) -> None:
    connection = await connected(fake_broker)
    responses = await asyncio.gather(*(connection.send(REQUEST) for _ in range(20)))
    assert {response.cluster_id for response in responses} == {"cluster"}
    assert connection.in_flight == 0
    await closed(connection)


@pytest.mark.parametrize("broker_max", [0, 2])
async def test_an_older_broker_is_asked_again_in_its_version(fake_broker: Any, broker_max: int) -> None:
    fake_broker.max_versions[ApiKey.API_VERSIONS] = broker_max
    connection = await connected(fake_broker)
    assert fake_broker.requests[0] == 3
    assert isinstance(fake_broker.requests[1], ApiVersionsRequest)
    await closed(connection)


async def test_requests_in_flight_fail_when_the_broker_disconnects(fake_broker: Any, hang_up: type[Exception]) -> None:
    def leave(request: Any) -> None:
        raise hang_up

    fake_broker.handlers[MetadataRequest] = leave
    connection = await connected(fake_broker)
    futures = [connection.start(REQUEST) for _ in range(3)]
    for future in futures:
        with pytest.raises(ConnectionFailed, match="closed the connection"):
            await future
    assert not connection.is_open
    with pytest.raises(ConnectionFailed):
        connection.start(REQUEST)


async def test_a_missing_answer_closes_the_connection(fake_broker: Any) -> None:
    fake_broker.handlers[MetadataRequest] = lambda request: None
    connection = await connected(fake_broker)
    late = connection.start(REQUEST, timeout_s=0.02)
    behind = connection.start(REQUEST)
    with pytest.raises(RequestTimedOut, match="no answer to Metadata in time"):
        await late
    with pytest.raises(RequestTimedOut):
        await behind
    assert not connection.is_open


async def test_an_unawaited_failure_causes_no_warning(fake_broker: Any) -> None:
    fake_broker.handlers[MetadataRequest] = lambda request: None
    connection = await connected(fake_broker)
    connection.start(REQUEST)
    cancelled = connection.start(REQUEST)
    cancelled.cancel()
    connection.close(ClientClosed("enough"))
    await connection.wait_closed()
    assert cancelled.cancelled()


async def test_an_answer_that_nobody_waits_for_any_more_is_dropped(fake_broker: Any) -> None:
    connection = await connected(fake_broker)
    connection.start(REQUEST).cancel()
    assert (await connection.send(REQUEST)).cluster_id == "cluster"
    await closed(connection)


async def test_an_answer_in_front_of_garbage_counts(fake_broker: Any) -> None:
    fake_broker.handlers[MetadataRequest] = lambda request: None
    connection = await connected(fake_broker)
    first, second = connection.start(REQUEST), connection.start(REQUEST)
    head = connection._protocol.in_flight[0]
    body = head.exchange.response_header.encode(ResponseHeader(correlation_id=head.correlation_id))
    body += head.exchange.response.encode(MetadataResponse(brokers=[], topics=[], cluster_id="c"))
    data = len(body).to_bytes(4, "big") + body + b"\0\0\0\x04oops"
    connection.get_buffer(-1)[: len(data)] = data
    connection.buffer_updated(len(data))
    async with asyncio.timeout(5):
        assert (await first).cluster_id == "c"
        with pytest.raises(ConnectionFailed, match="does not speak Kafka's protocol"):
            await second
    assert not connection.is_open


@pytest.mark.parametrize("is_mute", [True, False])
async def test_every_address_of_a_name_is_tried(
    fake_broker: Any, monkeypatch: pytest.MonkeyPatch, is_mute: bool
) -> None:
    """The first address accepts the connection and stays silent, or it refuses the connection."""
    with socket.socket() as first:
        first.bind(("127.0.0.2", fake_broker.port))
        if is_mute:
            first.listen()

        async def two(host: str, port: int, **_: Any) -> Any:
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, port)) for ip in ("127.0.0.2", "127.0.0.1")]

        loop = asyncio.get_running_loop()
        patched = type("Loop", (), {"getaddrinfo": staticmethod(two), "create_connection": loop.create_connection})
        monkeypatch.setattr("oncelog.connection.transport._loop", lambda: patched)
        address = Address("kafka.example", fake_broker.port)
        connection = await connect(address, client_id="me", request_timeout_s=5, setup_timeout_s=0.2)
        assert connection.is_open
        connection.close()
        await fake_broker.stop()
        with pytest.raises(ConnectionFailed, match=r"kafka\.example:.*127\.0\.0\.2: .*; 127\.0\.0\.1: "):
            await connect(address, client_id="me", request_timeout_s=5, setup_timeout_s=0.2)


async def test_an_unencodable_request_is_a_kafka_error(fake_broker: Any) -> None:
    connection = await connected(fake_broker)
    with pytest.raises(KafkaError, match="INVALID_REQUEST"):
        connection.start(MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="\ud800")]))
    assert (await connection.send(MetadataRequest(topics=[]))).cluster_id == "cluster"
    connection.close()


async def test_garbage_from_a_broker_is_a_clear_error() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await reader.read()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    address = Address("127.0.0.1", server.sockets[0].getsockname()[1])
    with pytest.raises(ConnectionFailed, match="does not speak Kafka's protocol"):
        await connect(address, client_id="me", request_timeout_s=5, setup_timeout_s=5)
    await stopped(server)


async def test_a_peer_that_says_nothing_is_given_up() -> None:
    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(listen, "127.0.0.1", 0)
    address = Address("127.0.0.1", server.sockets[0].getsockname()[1])
    with pytest.raises(ConnectionFailed, match=r"no connection within 0.02 s"):
        await connect(address, client_id="me", request_timeout_s=5, setup_timeout_s=0.02)
    await stopped(server)
