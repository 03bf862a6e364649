"""Lets all brokers of a measurement write their copies of the metadata in little memory.

A broker builds its copy as a list of all nodes, and then of all lines: 75 MB with 100,000 partitions, for seconds.
After a change all brokers of the cluster do so at the same time. In a real cluster each has memory of its own for it;
in one process, a hundred brokers would need as much for it as for everything else.

Here a copy is built topic by topic, by the broker's code and with the same result, and brokers whose copies have the
same lines for a topic share these.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from oncelog_broker.metadata.model import metadata_copy
from oncelog_broker.metadata.model.image import ClusterImage
from oncelog_broker.runtime.steps import Steps

MOST_SHARED: Final = 5_000
"""Number of topics' lines that are remembered for sharing."""


@contextmanager
def copies_shared() -> Iterator[None]:
    """Until the end of the `with` statement, each broker builds its copy of the metadata topic by topic."""
    nodes_of, encode_copy = metadata_copy.nodes_of, metadata_copy.encode_copy
    shared: dict[bytes, bytes] = {}

    def image_itself(image: ClusterImage) -> Steps[Any]:
        yield None
        return image

    def encode_by_topic(cluster_id: str, written_ms: int, image: Any) -> Steps[bytes]:
        count, pieces = 0, []
        for part in _parts(image):
            nodes = yield from nodes_of(part)
            head, lines, _ = _split((yield from encode_copy(cluster_id, written_ms, nodes)))
            count += len(nodes)
            if len(shared) >= MOST_SHARED:
                shared.clear()
            pieces.append(shared.setdefault(lines, lines))
        return b"".join((head, *pieces, metadata_copy._line({"nodes": count})))

    metadata_copy.nodes_of = image_itself
    metadata_copy.encode_copy = encode_by_topic  # type: ignore[assignment]
    try:
        yield
    finally:
        metadata_copy.nodes_of, metadata_copy.encode_copy = nodes_of, encode_copy


def _parts(image: ClusterImage) -> Iterator[ClusterImage]:
    """Yield an image for each topic, and one with everything else."""
    nothing = ClusterImage(image.cluster_id)
    for topic in image.topics.values():
        yield replace(nothing, topics={topic.name: topic})
    yield replace(image, topics={})


def _split(copy: bytes) -> tuple[bytes, bytes, bytes]:
    """Split the content of a copy into its first line, the lines of nodes, and its last line."""
    begin, end = copy.index(b"\n") + 1, copy.rindex(b"\n", 0, -1) + 1
    return copy[:begin], copy[begin:end], copy[end:]
