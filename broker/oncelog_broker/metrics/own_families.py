"""What only this broker knows: duplicates, gaps, fences, open transactions, markers, stalls of the loop."""

from __future__ import annotations

from oncelog_broker.metrics.family import NO_LABELS, Families, Sample, Samples
from oncelog_broker.metrics.source import Source
from oncelog_broker.observability.loop_watch import BUCKETS

families = Families()


@families.counter(
    "oncelog_producer_duplicates_total",
    "Batches that came again. answered: with the offset that they have; refused: DUPLICATE_SEQUENCE_NUMBER, surely in "
    "the log, and older than the last five.",
    "topic",
    "outcome",
)
def duplicates(source: Source) -> Samples:
    for topic, counted in source.topics.items():
        yield Sample({"topic": topic, "outcome": "answered"}, counted.duplicates)
        yield Sample({"topic": topic, "outcome": "refused"}, counted.old_duplicates)


@families.counter(
    "oncelog_producer_gaps_total",
    "Batches refused with OUT_OF_ORDER_SEQUENCE_NUMBER: some before them are missing.",
    "topic",
)
def gaps(source: Source) -> Samples:
    for topic, counted in source.topics.items():
        yield Sample({"topic": topic}, counted.gaps)


@families.counter(
    "oncelog_producer_fenced_total",
    "Batches refused by a log or a coordinator since another producer has replaced the one that sent them.",
    "topic",
)
def fenced(source: Source) -> Samples:
    for topic, counted in source.topics.items():
        yield Sample({"topic": topic}, counted.fenced)


@families.gauge(
    "oncelog_oauthbearer_keys_age_seconds",
    "Seconds since the keys that OAUTHBEARER tokens are signed with were read, or since the first try; of several "
    "listeners the one whose keys are oldest, 0 where none takes signed tokens. Far above "
    "sasl.oauthbearer.jwks.endpoint.refresh.ms the identity provider does not answer as it should: new keys are not "
    "known, and revoked ones are believed.",
)
def oauthbearer_keys_age(source: Source) -> Samples:
    yield Sample(NO_LABELS, max((seconds for _, seconds in source.services.key_ages()), default=0.0))


@families.gauge("oncelog_transactions_open", "Transactions that are ongoing, of those coordinated here.")
def transactions_open(source: Source) -> Samples:
    machines = list(source.services.transactions.runtime.machines())
    yield Sample(NO_LABELS, sum(machine.open_transactions for machine in machines))


@families.gauge(
    "oncelog_transactions_open_without_timeout",
    "Of the open transactions, those of two-phase commit: only their application, or an operator, ends them.",
)
def open_without_timeout(source: Source) -> Samples:
    found = 0
    for machine in list(source.services.transactions.runtime.machines()):
        found += machine.open_without_timeout
        yield None
    yield Sample(NO_LABELS, found)


@families.gauge("oncelog_transactions_oldest_open_seconds", "For how long the oldest of these is open; 0 without any.")
def oldest_open(source: Source) -> Samples:
    oldest = 0.0
    for machine in list(source.services.transactions.runtime.machines()):
        oldest = max(oldest, machine.oldest_seconds())
        yield None
    yield Sample(NO_LABELS, oldest)


@families.gauge("oncelog_transactional_ids", "Transactional ids that are known, of those coordinated here.")
def transactional_ids(source: Source) -> Samples:
    machines = list(source.services.transactions.runtime.machines())
    yield Sample(NO_LABELS, sum(len(machine.transactions) for machine in machines))


@families.gauge(
    "oncelog_transaction_markers_outstanding",
    "Partitions of decided transactions whose marker is not written yet, as far as their coordinator here knows.",
)
def markers_outstanding(source: Source) -> Samples:
    yield Sample(NO_LABELS, source.services.transactions.markers_outstanding)


@families.counter("oncelog_producer_id_blocks_total", "Blocks of a thousand producer ids taken since the start.")
def producer_id_blocks(source: Source) -> Samples:
    yield Sample(NO_LABELS, source.services.producer_ids.blocks_taken)


@families.histogram(
    "oncelog_loop_stall_seconds",
    "How late a timer of the event loop was that comes every 100 ms, where it was more than 10 ms late.",
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


@families.gauge("oncelog_loop_longest_stall_seconds", "The longest of these since the start.")
def longest_stall(source: Source) -> Samples:
    yield Sample(NO_LABELS, source.parts.loop.longest_seconds)


@families.gauge(
    "oncelog_session_in_doubt",
    "1 while this broker does not know whether others have taken its place: it leads and coordinates nothing.",
)
def session_in_doubt(source: Source) -> Samples:
    may_lead = source.replicas.may_lead
    yield Sample(NO_LABELS, may_lead is not None and not may_lead())


@families.gauge("oncelog_request_memory_bytes", "Bytes that requests hold, of queued.max.request.bytes.")
def request_memory(source: Source) -> Samples:
    yield Sample(NO_LABELS, source.parts.connections.limits.requests.used)


@families.gauge("oncelog_answer_memory_bytes", "Bytes that answers hold on the heap, of queued.max.response.bytes.")
def answer_memory(source: Source) -> Samples:
    yield Sample(NO_LABELS, source.parts.connections.limits.answers.used)
