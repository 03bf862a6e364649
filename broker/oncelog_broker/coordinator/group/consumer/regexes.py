"""Regular expressions in subscriptions: decides when the expressions are matched against the names of topics, and
changes the group afterwards. Pure.

A pattern has the syntax of RE2 and must match a topic name completely. RE2 takes time proportional to the pattern and
the name, and there may be many names, so RE2 runs in a thread, and each job matches a limited number of names
(`coordinator.patterns`). All patterns (regular expressions) of a group are matched together, for all members. A
heartbeat starts the matching. The result has only topics that the sender of this heartbeat is authorized to describe.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from enum import Enum
from typing import Final, NamedTuple

from oncelog_broker.coordinator.effects import Job
from oncelog_broker.coordinator.group.assigning.spec import UNITS_PER_STEP
from oncelog_broker.coordinator.group.consumer.change import MemberChange, mark_checked
from oncelog_broker.coordinator.group.consumer.consumer_group import ResolvedRegex
from oncelog_broker.coordinator.group.consumer.step import ConsumerStep
from oncelog_broker.coordinator.group.consumer_records import RegexRecord
from oncelog_broker.coordinator.patterns import matching_topics
from oncelog_broker.runtime.steps import Steps
from oncelog_protocol.coordinator_records.consumer_groups import ConsumerGroupRegularExpressionValue
from oncelog_protocol.errors import ErrorCode, KafkaError

MIN_REFRESH_MS: Final = 10_000
"""When new topics appear, the patterns are matched again at most once per this number of milliseconds. A new pattern is
matched immediately.
"""
REGEX_JOB: Final = "regexes"
MayDescribe = Callable[[str], bool]
"""Function of a topic name that returns whether the member's principal may describe the topic."""


class RegexChange(Enum):
    """How a heartbeat changes the regular expression of its member. RESOLVED: the topics that the new pattern matches
    are already known, or the member no longer has a pattern.
    """

    NONE = 0
    CHANGED = 1
    RESOLVED = 2


class Resolved(NamedTuple):
    """The result of a job that matched all patterns of a group: `topics` maps each pattern to the topics among `names`
    that it matches."""

    topics: Mapping[str, frozenset[str]]
    names: Collection[str]


def change_regex(change: MemberChange, may_describe: MayDescribe, wrong: str | None) -> RegexChange:
    """Handle the regular expression that the member uses after its heartbeat, and start a job if patterns must be
    matched with topic names. `wrong` is the error message for an invalid pattern; None if the pattern is valid or was
    not checked. Raises KafkaError INVALID_REGULAR_EXPRESSION."""
    step, group = change.step, change.step.group
    old, new = change.before.regex, change.member.regex
    used = set(group.regex_members)
    kind = RegexChange.NONE
    if old != new:
        kind = RegexChange.CHANGED
        if old and group.regex_members[old] == 1:
            used.discard(old)
            step.effects.append(RegexRecord(group.group_id, old, None))
        if new and new not in group.regex_members:
            if wrong is not None:
                raise KafkaError(
                    ErrorCode.INVALID_REGULAR_EXPRESSION,
                    f"SubscribedTopicRegex `{new}` is not a valid regular expression: {wrong}.",
                )
            used.add(new)
        elif not new or new in group.regexes:
            kind = RegexChange.RESOLVED
    if used and _is_due(step, used):
        step.effects.jobs.append(Job(group.group_id, REGEX_JOB, lambda: _resolve(step, may_describe)))
    return kind


def _is_due(step: ConsumerStep, used: set[str]) -> bool:
    group = step.group
    if not group.regexes.keys() >= used:
        return True
    since = step.now_ms - max(regex.timestamp_ms for regex in group.regexes.values())
    if 0 <= since <= MIN_REFRESH_MS:
        return False
    has_new_topics = group.resolved_names is not step.topics.names_of_topics
    return has_new_topics or not 0 <= since <= step.config.consumer_regex_refresh_interval_ms


def _resolve(step: ConsumerStep, may_describe: MayDescribe) -> Steps[Resolved | None]:
    """The job that matches all patterns of the group; the result is None if the group no longer exists."""
    group, names = step.logged_group(), step.topics.names_of_topics
    if group is None:
        return None
    found: dict[str, frozenset[str]] = {}
    listed = list(names)
    for pattern in list(group.regex_members):
        matched = yield from matching_topics(pattern, listed)
        allowed = set()
        for number, name in enumerate(matched, 1):
            if may_describe(name):
                allowed.add(name)
            if number % UNITS_PER_STEP == 0:
                yield None
        found[pattern] = frozenset(allowed)
    return Resolved(found, names)


def take_resolved(step: ConsumerStep, resolved: Resolved) -> None:
    """Log the topics that a job found for each pattern, if a member still uses the pattern. If these topics have
    changed, raise the group epoch, so that the group is assigned again.

    The records may be divided into several batches, because hundreds of patterns may match thousands of topics each.
    The group epoch is logged first, so that a new assignment is computed even if only some of the other records can be
    logged.
    """
    group, effects = step.group, step.effects
    regexes = dict(group.regexes)
    found: list[RegexRecord] = []
    has_changed = False
    for pattern, topics in resolved.topics.items():
        if pattern not in group.regex_members:
            continue
        known = regexes.get(pattern)
        has_changed |= (known is None and bool(topics)) or (known is not None and known.topics != topics)
        regexes[pattern] = ResolvedRegex(topics, step.now_ms)
        value = ConsumerGroupRegularExpressionValue(topics=sorted(topics), version=0, timestamp=step.now_ms)
        found.append(RegexRecord(group.group_id, pattern, value))
    if not found:
        return
    metadata_hash = step.topics.hash_of(group.topics_with(group.members, regexes))
    if has_changed or metadata_hash != group.metadata_hash:
        effects.append(group.epoch_record(group.epoch + 1, metadata_hash))
    effects.records += found
    effects.may_be_divided = True
    effects.changes.append(lambda: _mark_resolved(step, resolved))


def _mark_resolved(step: ConsumerStep, resolved: Resolved) -> None:
    group = step.logged_group()
    mark_checked(group, step.topics)
    if group is not None:
        group.resolved_names = resolved.names


def drop_unused(step: ConsumerStep, left: Collection[str]) -> None:
    """Log tombstones for the regular expressions that no remaining member (`left`) uses."""
    group, effects = step.group, step.effects
    used = {group.members[member_id].regex for member_id in left}
    for regex in sorted({*group.regex_members, *group.regexes} - used):
        effects.append(RegexRecord(group.group_id, regex, None))
