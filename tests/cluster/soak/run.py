"""Runs the soak once: clients work, faults occur and are ended, and the checker then compares the history with the
guarantees.
"""

from __future__ import annotations

import faulthandler
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from threading import Event
from typing import Any, NamedTuple

from final_state import note_content, note_replicas
from recording_clients import PRODUCERS
from recording_members import begin_at_zero
from replicated_cluster import BROKERS

from oncelog_testing.history.checker import violations
from oncelog_testing.history.events import Place
from oncelog_testing.history.recorder import History
from soak.faults import Done, Resources, strike_and_heal
from soak.librdkafka_pipeline import LibrdkafkaPipeline
from soak.members import Group
from soak.observers import LeaderObserver, Observer, OffsetObserver, UseObserver
from soak.our_pipeline import OurPipeline
from soak.pipelines import PARTITIONS, Job, Notes, Pipeline
from soak.plan import Fault, Strike, plan
from soak.progress import Progress
from soak.readers import LibrdkafkaReader, OurReader, Reader
from soak.stage import Stage
from soak.streams import TOPICS as STREAMS_TOPICS
from soak.streams import Streams
from soak.writers import LineWriter

LINES = "lines"
PIPELINES = {"oncelog": OurPipeline, "librdkafka": LibrdkafkaPipeline}
READERS = {"oncelog": OurReader, "librdkafka": LibrdkafkaReader}
WRITER_SETTINGS: Mapping[str, dict[str, Any]] = {
    "oncelog": {},
    # If a request fails although the broker receives the next request, librdkafka 2.16 begins a new epoch for all
    # partitions, and sends batches again that other partitions already have without the library's knowledge. No broker
    # can
    # recognise these batches as duplicates by their sequences.
    "librdkafka": {"max_in_flight": 1},
}
MEMBERS = "readers"
STUCK_SECONDS = 150.0
"""A client that makes no progress for this many seconds counts as stuck, whatever the faults."""
SETTLE_SECONDS = 90.0
LOOK_SECONDS = 0.1
PROMPT_SECONDS = 4.0
"""Seconds until a fault is healed, on a machine that is not too busy: a broker takes some 1.5 s until it serves.
"""
SHOWN = 40


class Settings(NamedTuple):
    seed: int
    seconds: float
    """For how many seconds faults are injected."""
    faults: tuple[Fault, ...] = tuple(Fault)
    lines_per_second: float = 10.0
    """Number of lines (records) per second that each writer sends."""
    pipelines: int = 2
    """The number of pipelines of each library."""
    streams_class_path: str = ""
    """The class path of the Kafka Streams applications; if it is empty, they do not run."""


class Problem(Exception):
    """Raised if the run cannot continue."""


class Result(NamedTuple):
    settings: Settings
    done: list[Done]
    progress: Progress
    use: UseObserver
    history: History
    problems: list[str]
    given_up: int


class Run:
    def __init__(self, stage: Stage, settings: Settings, say: Callable[[str], object] = print) -> None:
        self.stage = stage
        self.settings = settings
        self.say = say
        self.history = History()
        self.progress = Progress()
        self.done: list[Done] = []
        self.problems: list[str] = []
        self._is_over = Event()
        self._make_clients()

    @property
    def places(self) -> list[Place]:
        topics = [LINES, *(f"copies-{library}" for library in PIPELINES)]
        return [Place(topic, index) for topic in topics for index in range(PARTITIONS)]

    @property
    def lines(self) -> list[Place]:
        return [Place(LINES, index) for index in range(PARTITIONS)]

    def play(self) -> Result:
        """Run clients and faults to the end; every error is in the `problems` of the result."""
        try:
            self._play()
        except (Problem, AssertionError) as error:
            self._wrong(str(error) or repr(error))
            self._keep_stacks()
        finally:
            self._is_over.set()
            if self.streams is not None:
                self.streams.close()
        given_up = sum(writer.given_up for writer in self.writers)
        if given_up:
            self._wrong(f"writers gave up {given_up} lines")
        return Result(self.settings, self.done, self.progress, self.use, self.history, self.problems, given_up)

    def _wrong(self, what: str) -> None:
        self.say(f"PROBLEM {what}")
        self.problems.append(what)

    # --- clients

    def _make_clients(self) -> None:
        self.streams: Streams | None = None
        self.writers: list[LineWriter] = []
        self.pipelines: list[Pipeline] = []
        self.readers: list[Reader] = []

    def _start_clients(self) -> None:
        cluster, history, progress, seed = self.stage.cluster, self.history, self.progress, self.settings.seed
        for library, producer in PRODUCERS.items():
            writing = producer(cluster.addresses, history, f"writer {library}", **WRITER_SETTINGS[library])
            self.writers.append(LineWriter(writing, self.lines, self.settings.lines_per_second, progress))
        for library, pipeline in PIPELINES.items():
            job = Job(cluster.addresses, f"copiers-{library}", LINES, f"copies-{library}")
            self.pipelines += [
                pipeline(Notes(f"copier-{library}-{number}", job, history, progress, seed))
                for number in range(self.settings.pipelines)
            ]
        # Each library reads all the lines, and the output of the other library's pipelines.
        for library, reader in READERS.items():
            other = next(each for each in PIPELINES if each != library)
            copies = [Place(f"copies-{other}", index) for index in range(PARTITIONS)]
            for places, is_committed in ((copies, True), (copies, False), (self.lines, True)):
                name = f"reader {library} of {places[0].topic}" + ("" if is_committed else ", uncommitted")
                self.readers.append(
                    reader(name, cluster.addresses, places, history, progress, is_committed=is_committed)
                )
        if self.settings.streams_class_path:
            self.streams = Streams(
                self.settings.streams_class_path, cluster.addresses, self.stage.directory, progress, seed
            )
        self.group = Group(MEMBERS, cluster.addresses, LINES, history, progress, seed)
        groups = dict.fromkeys((MEMBERS, *(f"copiers-{library}" for library in PIPELINES)), self.lines)
        for group in groups:
            begin_at_zero(cluster.addresses, history, group, self.lines)
        self.offsets = OffsetObserver(cluster, groups, history)
        self.use = UseObserver(cluster, progress)
        leaders = [LeaderObserver(cluster, node_id, self.places, history) for node_id in BROKERS]
        self.observers: list[Observer] = [*leaders, self.offsets, self.use]
        self.clients = [*self.writers, *self.pipelines, *self.readers, self.group, *self.observers]
        if self.streams is not None:
            self.clients.append(self.streams)
        for client in self.clients:
            client.start()

    def _look(self) -> None:
        """Raises Problem."""
        for client in self.clients:
            if client.failure is not None:
                raise Problem(f"{client.name} failed: {client.failure!r}") from client.failure
        stuck = self.progress.waiting(STUCK_SECONDS)
        if stuck:
            raise Problem("stuck: " + ", ".join(f"{client} for {seconds:.0f} s" for client, seconds in stuck.items()))
        for node_id, broker in self.stage.cluster.brokers.items():
            code = None if broker.process is None else broker.process.poll()
            if code not in (None, 0, -9):
                raise Problem(f"broker {node_id} ended by itself, with {code}")

    def _until(self, condition: Callable[[], bool], what: str, seconds: float = SETTLE_SECONDS) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            self._look()
            if time.monotonic() > deadline:
                raise Problem(f"not in {seconds:.0f} s: {what}")
            time.sleep(LOOK_SECONDS)

    def _until_all_get_on(self) -> None:
        before = self.progress.count.copy()
        for client in self.progress.clients:
            self._until(lambda: self.progress.count[client] > before[client], f"{client} gets on")  # noqa: B023

    # --- the run

    def _play(self) -> None:
        topics = {place.topic for place in self.places} | set(
            STREAMS_TOPICS if self.settings.streams_class_path else ()
        )
        for topic in sorted(topics):
            replicas = [(*BROKERS[index:], *BROKERS[:index]) for index in range(PARTITIONS)]
            self.stage.cluster.create_topic(topic, *replicas)
        self._start_clients()
        self._until_all_get_on()
        self._strike(plan(self.settings.seed, self.settings.seconds, self.settings.faults))
        self._settle()
        self._note_the_end()
        found = violations(self.history)
        for violation in found[:SHOWN]:
            self._wrong(str(violation))
        if len(found) > SHOWN:
            self._wrong(f"... {len(found)} violations in all")
        self._check_logs()

    def _strike(self, strikes: Sequence[Strike]) -> None:
        """Cause the faults at the planned times. The plan's clock pauses while no broker serves because processes start
        slowly, because another fault at that time would test nothing.
        """
        resources, under_way, left = Resources(), dict[Future[Done], float](), list(strikes)
        planned, last = 0.0, self.progress.now
        while left or under_way:
            self._look()
            now = self.progress.now
            if all(now < due for due in under_way.values()):
                planned += now - last
            last = now
            if left and left[0].at <= planned:
                strike = left.pop(0)
                self.say(f"{now:7.1f} {strike}")
                future = self.stage.hands.submit(
                    strike_and_heal, self.stage, strike, resources, self._is_over, lambda: self.progress.now
                )
                under_way[future] = now + strike.seconds + PROMPT_SECONDS
            for future in [each for each in under_way if each.done()]:
                del under_way[future]
                self.done.append(future.result())
            time.sleep(LOOK_SECONDS)

    def _settle(self) -> None:
        """End all faults, and wait until all clients have ended."""
        cluster = self.stage.cluster
        cluster.mend()
        for node_id in BROKERS:
            cluster.until_whole(*cluster.topics(), node_id=node_id)
        self._until_all_get_on()
        if self.streams is not None:
            self.streams.finish()
        for writer in self.writers:
            writer.stop()
        ends = {place: self._end(place) for place in self.lines}
        for group in (MEMBERS, *(f"copiers-{library}" for library in PIPELINES)):
            self._until(lambda: self._committed(group) == ends, f"{group} has processed everything")  # noqa: B023
            for place, end in ends.items():
                if group != MEMBERS:
                    self.history.finally_processed(group, place, end)
        self.group.stop()
        for pipeline in self.pipelines:
            pipeline.stop(SETTLE_SECONDS)
        if self.streams is not None:
            self._until(self.streams.has_finished, "all lines are copied, and all words counted")
            self.streams.stop()

    def _end(self, place: Place) -> int:
        with self.stage.cluster.client(self.stage.cluster.until_led(*place).leader) as leader:
            return leader.list_offset(*place)[0]

    def _committed(self, group: str) -> dict[Place, int]:
        try:
            return self.offsets.committed(group)
        except OSError:
            return {}

    def _note_the_end(self) -> None:
        for place in self.places:
            note_content(self.stage.cluster, self.history, place)
        for topic in self.stage.cluster.topics():
            for index in self.stage.cluster.parts(topic):
                note_replicas(self.stage.cluster, self.history, Place(topic, index))
        for reader in self.readers:
            self._until(lambda: self._has_read_all(reader), f"{reader.name} has read everything")  # noqa: B023
            reader.stop()
        for observer in self.observers:
            observer.stop()
        read = {
            value
            for reading in self.history.readings
            if reading.consumer.startswith(f"{MEMBERS}-")
            for _, value in reading.records
        }
        missing = [value for place in self.lines for _, value in self.history.final[place] if value not in read]
        if missing:
            self._wrong(f"{len(missing)} lines were given to no member of {MEMBERS}: {missing[:5]}")

    def _has_read_all(self, reader: Reader) -> bool:
        readings = [each for each in self.history.readings if each.consumer == reader.name]
        return all(
            not self.history.final[each.place]
            or (each.records and each.records[-1][0] >= self.history.final[each.place][-1][0])
            for each in readings
        )

    # --- remaining checks

    def _check_logs(self) -> None:
        for node_id, broker in self.stage.cluster.brokers.items():
            for what in unexpected(broker.log.read_text().splitlines()):
                self._wrong(f"broker {node_id} logged: {what}")

    def _keep_stacks(self) -> None:
        with (self.stage.directory / "stacks.txt").open("w") as file:
            faulthandler.dump_traceback(file)


def unexpected(lines: Iterable[str]) -> list[str]:
    """Return the last lines of tracebacks, except those that a full disk causes."""
    found, is_inside = [], False
    for line in lines:
        if line.startswith("Traceback"):
            is_inside = True
        elif is_inside and not line.startswith((" ", "\t")) and line.strip():
            is_inside = False
            if "[Errno 28]" not in line:
                found.append(line)
    return found
