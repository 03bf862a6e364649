"""Metrics that Kafka does not have: duplicates, gaps, fencing, open transactions, markers, and stalls of the event
loop.
"""

from __future__ import annotations

from oncelog_broker.metrics.family import NO_LABELS, Families, Sample, Samples
from oncelog_broker.metrics.source import Source
from oncelog_broker.observability.loop_watch import BUCKETS

families = Families()


@families.counter(
    "oncelog_producer_duplicates_total",
    "Duplicate batches. answered: with the offset of the original; refused: DUPLICATE_SEQUENCE_NUMBER, in the log but"
    " older than the last five.",
    "topic",
    "outcome",
)
def duplicates(source: Source) -> Samples:
    for topic, counted in source.topics.items():
        yield Sample({"topic": topic, "outcome": "answered"}, counted.duplicates)
        yield Sample({"topic": topic, "outcome": "refused"}, counted.old_duplicates)


@families.counter(
    "oncelog_producer_gaps_total",
    "Batches refused with OUT_OF_ORDER_SEQUENCE_NUMBER: earlier batches are missing.",
    "topic",
)
def gaps(source: Source) -> Samples:
    for topic, counted in source.topics.items():
        yield Sample({"topic": topic}, counted.gaps)


@families.counter(
    "oncelog_producer_fenced_total",
    "Batches refused by a log or coordinator because their producer is fenced.",
    "topic",
)
def fenced(source: Source) -> Samples:
    for topic, counted in source.topics.items():
        yield Sample({"topic": topic}, counted.fenced)


@families.gauge(
    "oncelog_oauthbearer_keys_age_seconds",
    "Seconds since the keys that OAUTHBEARER tokens are signed with were read, or since the first try; of several "
    "listeners the one whose keys are oldest, 0 if none verifies tokens. Far above "
    "sasl.oauthbearer.jwks.endpoint.refresh.ms the identity provider does not respond: new keys are not "
    "known, and revoked ones are still accepted.",
)
def oauthbearer_keys_age(source: Source) -> Samples:
    yield Sample(NO_LABELS, max((seconds for _, seconds in source.services.key_ages()), default=0.0))


@families.gauge("oncelog_transactions_open", "Ongoing transactions coordinated here.")
def transactions_open(source: Source) -> Samples:
    machines = list(source.services.transactions.runtime.machines())
    yield Sample(NO_LABELS, sum(machine.open_transactions for machine in machines))


@families.gauge(
    "oncelog_transactions_open_without_timeout",
    "Ongoing transactions of two-phase commit: only their application, or an operator, ends them.",
)
def open_without_timeout(source: Source) -> Samples:
    found = 0
    for machine in list(source.services.transactions.runtime.machines()):
        found += machine.open_without_timeout
        yield None
    yield Sample(NO_LABELS, found)


@families.gauge("oncelog_transactions_oldest_open_seconds", "Age of the oldest ongoing transaction; 0 without any.")
def oldest_open(source: Source) -> Samples:
    oldest = 0.0
    for machine in list(source.services.transactions.runtime.machines()):
        oldest = max(oldest, machine.oldest_seconds())
        yield None
    yield Sample(NO_LABELS, oldest)


@families.gauge("oncelog_transactional_ids", "Transactional ids coordinated here.")
def transactional_ids(source: Source) -> Samples:
    machines = list(source.services.transactions.runtime.machines())
    yield Sample(NO_LABELS, sum(len(machine.transactions) for machine in machines))


@families.gauge(
    "oncelog_transaction_markers_outstanding",
    "Partitions of decided transactions whose marker is not yet known to be written.",
)
def markers_outstanding(source: Source) -> Samples:
    yield Sample(NO_LABELS, source.services.transactions.markers_outstanding)


@families.counter("oncelog_producer_id_blocks_total", "Blocks of a thousand producer ids allocated since the start.")
def producer_id_blocks(source: Source) -> Samples:
    yield Sample(NO_LABELS, source.services.producer_ids.blocks_taken)


@families.histogram(
    "oncelog_loop_stall_seconds",
    "Delay of the event loop's 100 ms timer, when it fired more than 10 ms late.",
)
def loop_stalls(source: Source) -> Samples:
    watch, seen = source.parts.loop, 0
    for bound, count in zip(BUCKETS, watch.stalls, strict=False):
        seen += count
        yield Sample({"le": str(bound)}, seen, "_bucket")
    seen += watch.stalls[-1]
    yield Sample({"le": "+Inf"}, seen, "_bucket")
    yield Sample(NO_LABELS, watch.stalled_seconds, "_sum")
    yield Sample(NO_LABELS, seen, "_count")


@families.gauge("oncelog_loop_longest_stall_seconds", "The longest stall of the event loop since the start.")
def longest_stall(source: Source) -> Samples:
    yield Sample(NO_LABELS, source.parts.loop.longest_seconds)


@families.gauge(
    "oncelog_session_in_doubt",
    "1 while this broker's session may have expired: it leads and coordinates nothing.",
)
def session_in_doubt(source: Source) -> Samples:
    may_lead = source.replicas.may_lead
    yield Sample(NO_LABELS, may_lead is not None and not may_lead())


@families.gauge("oncelog_request_memory_bytes", "Bytes held by requests, limited by queued.max.request.bytes.")
def request_memory(source: Source) -> Samples:
    yield Sample(NO_LABELS, source.parts.connections.limits.requests.used)


@families.gauge(
    "oncelog_answer_memory_bytes", "Bytes held by responses on the heap, limited by queued.max.response.bytes."
)
def answer_memory(source: Source) -> Samples:
    yield Sample(NO_LABELS, source.parts.connections.limits.answers.used)
