"""Compares consumer groups of the new protocol (KIP-848): heartbeats of members, rebalances, and descriptions."""

from __future__ import annotations

from tests.interop.differential.calls import create, end_transaction, transactional_producer
from tests.interop.differential.consumer_members import (
    LEAVE_FOR_A_WHILE,
    ConsumerMember,
    assignment,
    consumer_group,
    describe_consumer_groups,
    subscription,
)
from tests.interop.differential.members import (
    SUBSCRIPTION,
    Member,
    all_offsets,
    await_state,
    commit_offset,
    delete_groups,
    delete_offsets,
    describe_groups,
    heartbeat,
    join,
    joined,
    leave,
    only_member,
    settle_groups,
    sync,
)
from tests.interop.differential.scenario import scenario
from tests.interop.differential.scenarios import transaction_offsets
from tests.interop.differential.scenarios.transaction_offsets import add_offsets
from tests.interop.differential.side import Side

from oncelog_protocol.api import ApiKey


@scenario
def bad_heartbeats(side: Side) -> None:
    """Send heartbeats that no group accepts, in both versions."""
    create(side, "a")
    consumer_group(side)
    member = ConsumerMember(side, "g", "m")
    for version in (0, 1):
        member.beat("unknown group, epoch 5", epoch=5, version=version)
        member.beat("unknown group, leave", epoch=-1, version=version)
        member.beat("unknown group, leave for a while", epoch=-2, instance_id="i", version=version)
        member.beat("leave for a while without an instance", epoch=-2, version=version)
        member.beat("epoch -3", epoch=-3, version=version)
        member.beat("join without topics", epoch=0, owned={}, version=version)
        member.beat("join without owned partitions", epoch=0, topics=["a"], version=version)
        member.beat("join with owned partitions", epoch=0, topics=["a"], owned={"a": [0]}, version=version)
        member.join("join without a timeout", "a", rebalance_timeout_ms=-1, version=version)
        member.join("timeout 0", "a", rebalance_timeout_ms=0, group_id=side.own(f"zero{version}"), version=version)
        member.join("unknown assignor", "a", server_assignor="none", version=version)
        member.join("empty assignor", "a", server_assignor="", version=version)
        member.join("empty rack", "a", rack_id="", version=version)
        member.join("blank rack", "a", rack_id=" ", version=version)
        member.join("empty instance", "a", instance_id="", version=version)
        ConsumerMember(side, "", "m").join("empty group id", "a", version=version)
        ConsumerMember(side, "g", "").beat("no member id, epoch 1", epoch=1, version=version)
        ConsumerMember(side, "g", "").beat("no member id, leave", epoch=-1, version=version)
    ConsumerMember(side, "g", "").join("no member id", "a")
    ConsumerMember(side, "both", "m").join("regular expression, and topics", "a", subscribed_topic_regex="a.*")
    member.join("wrong regular expression", "a", subscribed_topic_regex="(a")
    member.join("empty regular expression", subscribed_topic_regex="")
    describe_consumer_groups(side, "g", label="afterwards")


@scenario
def member_ids(side: Side) -> None:
    """Let the broker generate the member id (v0), and use ids of other forms."""
    create(side, "a")
    consumer_group(side)
    member = ConsumerMember(side, "g", "")
    member.id = member.join("the broker generates the id", "a", version=0).member_id
    member.beat("with the id", version=0)
    member.leave("leaves", version=0)
    for length in (1, 36, 37, 500):
        member = ConsumerMember(side, f"g{length}", "m" * length)
        member.join(f"id of {length} characters", "a")


@scenario
def one_member(side: Side) -> None:
    """Let a member join, stay, send other epochs, change its subscription, rejoin and leave."""
    create(side, "a", 2)
    create(side, "b")
    consumer_group(side)
    member = ConsumerMember(side, "g", "m")
    member.join("join", "a", rack_id="r")
    describe_consumer_groups(side, "g", label="joined")
    member.reconcile("reports its partitions")
    member.beat("nothing new")
    member.beat("same topics", topics=["a"])
    for version in (0, 1):
        describe_consumer_groups(side, "g", label="with partitions", version=version)
    describe_consumer_groups(side, "g", label="operations", include_authorized_operations=True)
    member.beat("full request", topics=["a"], owned=member.assigned, rebalance_timeout_ms=50_000)
    member.beat("next epoch", epoch=member.epoch + 1)
    member.beat("next epoch, with partitions", epoch=member.epoch + 1, owned=member.assigned)
    stranger = ConsumerMember(side, "g", "stranger", 1)
    stranger.beat("stranger")
    stranger.leave("stranger leaves")
    member.beat("another topic", topics=["b"])
    member.reconcile("with the other topic")
    member.reconcile("with the other topic again")
    describe_consumer_groups(side, "g", label="the other topic")
    member.beat("previous epoch, no partitions reported", epoch=member.epoch - 1)
    member.beat("previous epoch, with its partitions", epoch=member.epoch - 1, owned=member.assigned)
    member.beat("previous epoch, with other partitions", epoch=member.epoch - 1, owned={"a": [0]})
    member.beat("both topics", topics=["a", "b"])
    member.reconcile("with both")
    member.beat("topic twice", topics=["a", "a"])
    member.reconcile("with one of them")
    member.beat("unknown topic", topics=["none"])
    member.reconcile("without partitions")
    describe_consumer_groups(side, "g", label="unknown topic")
    member.beat("no topics", topics=[])
    member.beat("back", topics=["a"])
    member.reconcile("back again")
    member.beat("another rack", rack_id="s")
    member.join("rejoin", "a")
    member.reconcile("after it rejoined")
    member.beat("partitions that it does not own", owned={"a": [0, 1], "b": [0]})
    member.leave("leave")
    member.beat("after it left", epoch=3)
    member.leave("leave again")
    describe_consumer_groups(side, "g", label="empty")
    delete_groups(side, "g", label="empty")
    describe_consumer_groups(side, "g", label="deleted")


@scenario
def topic_grows_and_goes(side: Side) -> None:
    """Let a member subscribe to a topic that does not exist yet, that gets more partitions, and that is deleted."""
    create(side, "b")
    consumer_group(side)
    member = ConsumerMember(side, "g", "m").settle({"b": [0]}, "a", "b")
    create(side, "a")
    member.settle({"a": [0], "b": [0]})
    side.note("epoch with the new topic", member.epoch)
    asked = {"topics": [{"name": side.own("a"), "count": 3, "assignments": None}], "timeout_ms": 5000}
    side.get(ApiKey.CREATE_PARTITIONS, 3, asked)
    member.settle({"a": [0, 1, 2], "b": [0]})
    side.note("epoch with more partitions", member.epoch)
    side.get(ApiKey.DELETE_TOPICS, 5, {"topic_names": [side.own("a")], "timeout_ms": 5000})
    member.settle({"b": [0]}, "a", "b")
    side.note("epoch without the topic", member.epoch)
    describe_consumer_groups(side, "g", label="at last")


@scenario
def two_members(side: Side) -> None:
    """Let a second member join, so that the first member has to revoke partitions, and let the first member leave."""
    create(side, "a", 2)
    consumer_group(side)
    first = ConsumerMember(side, "g", "m").settle({"a": [0, 1]})
    second = ConsumerMember(side, "g", "n")
    second.join("second joins", "a")
    describe_consumer_groups(side, "g", label="second joined")
    second.beat("second waits")
    first.beat("first learns what to revoke")
    describe_consumer_groups(side, "g", label="first revokes")
    first.beat("first, nothing reported")
    first.beat("first still has both", owned={"a": [0, 1]})
    second.reconcile("second still waits")
    first.reconcile("first has revoked")
    describe_consumer_groups(side, "g", label="first has revoked")
    second.reconcile("second gets a partition")
    second.reconcile("second has it")
    first.reconcile("first again")
    describe_consumer_groups(side, "g", label="both have one")
    second.beat("second, epoch before", epoch=second.epoch - 1)
    first.leave("first leaves")
    second.reconcile("second gets both")
    second.reconcile("second has both")
    describe_consumer_groups(side, "g", label="one left")


@scenario
def assignors(side: Side) -> None:
    """Let members prefer different assignors."""
    create(side, "a", 3)
    consumer_group(side)
    first = ConsumerMember(side, "g", "m").settle({"a": [0, 1, 2]}, server_assignor="range")
    describe_consumer_groups(side, "g", label="range")
    second = ConsumerMember(side, "g", "n")
    second.join("second joins", "a", server_assignor="range")
    first.beat("first learns what to revoke")
    first.reconcile("first has revoked")
    second.beat("second gets a partition")
    describe_consumer_groups(side, "g", label="both range")
    second.beat("second prefers uniform", server_assignor="uniform")
    describe_consumer_groups(side, "g", label="one uniform")
    first.beat("first prefers uniform", server_assignor="uniform")
    describe_consumer_groups(side, "g", label="both uniform")


@scenario
def no_topics(side: Side) -> None:
    """Let a member join that subscribes to no topics, beside a member that has partitions: at first, and when the
    assignment is outdated, because another member has left.
    """
    create(side, "a", 2)
    consumer_group(side)
    first = ConsumerMember(side, "g", "n").settle({"a": [0, 1]})
    second = ConsumerMember(side, "g", "m")
    second.join("second joins without topics")
    first.reconcile("first")
    describe_consumer_groups(side, "g", label="second has no topics")
    second.beat("second subscribes", topics=["a"])
    second.leave("second leaves")
    second.join("second joins without topics again")
    describe_consumer_groups(side, "g", label="second has no topics again")


@scenario
def static_members(side: Side) -> None:
    """Let static members leave for a while, return with a new member id, and fence each other."""
    create(side, "a", 2)
    consumer_group(side)
    old = ConsumerMember(side, "g", "m", instance="i").settle({"a": [0, 1]})
    ConsumerMember(side, "g", "n", instance="i").join("same instance, not released", "a")
    ConsumerMember(side, "g", "n", 1, "i").beat("same instance, another member")
    ConsumerMember(side, "g", "m", old.epoch, "j").beat("another instance")
    ConsumerMember(side, "g", "m", old.epoch).beat("without the instance")
    ConsumerMember(side, "g", "n", instance="i").leave("another member leaves for a while", epoch=LEAVE_FOR_A_WHILE)
    old.leave("leaves for a while", epoch=LEAVE_FOR_A_WHILE)
    describe_consumer_groups(side, "g", label="away")
    new = ConsumerMember(side, "g", "n", instance="i")
    new.join("returns", "a")
    new.reconcile("has its partitions")
    describe_consumer_groups(side, "g", label="returned")
    old.beat("the old member", epoch=1)
    old.leave("the old member leaves")
    old.leave("the old member leaves for a while", epoch=LEAVE_FOR_A_WHILE)
    new.join("joins again", "a")
    new.leave("leaves for a while again", epoch=LEAVE_FOR_A_WHILE)
    same = ConsumerMember(side, "g", "n", instance="i")
    same.join("returns with its own id", "a")
    same.leave("leaves")
    describe_consumer_groups(side, "g", label="gone")
    fresh = ConsumerMember(side, "g", "o", instance="i")
    fresh.join("joins as a new member", "a")
    fresh.leave("leaves at last")


@scenario
def regular_expressions(side: Side) -> None:
    """Subscribe by regular expressions; the broker resolves them after its response."""
    create(side, "a", 2)
    create(side, "ab")
    consumer_group(side)
    member = ConsumerMember(side, "g", "m")
    pattern = side.own("a")
    member.settle({"a": [0, 1]}, subscribed_topic_regex=pattern, subscribed_topic_names=[])
    _note_subscription(side, "one topic")
    member.settle({"a": [0, 1], "ab": [0]}, subscribed_topic_regex=f"{pattern}.*", subscribed_topic_names=[])
    _note_subscription(side, "two topics")
    for wrong in ("(a", "[", "a**", "(?<=a)b", "\\"):
        member.beat(f"wrong regular expression {wrong}", subscribed_topic_regex=wrong)
    member.settle({"ab": [0]}, "ab", subscribed_topic_regex="")
    _note_subscription(side, "names instead")


def _note_subscription(side: Side, label: str) -> None:
    """Record the subscription of the only member, without the epochs, which depend on the time that a broker takes to
    resolve a regular expression.
    """
    settle_groups(side)
    answer = side.get(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, {"group_ids": [side.own("g")]})
    (member,) = answer.groups[0].members
    names = sorted(side.plain.text(name) for name in member.subscribed_topic_names)
    side.note(label, [answer.groups[0].group_state, names, side.plain.text(member.subscribed_topic_regex or "")])


@scenario
def kinds_of_groups(side: Side) -> None:
    """Send requests of the classic protocol to a consumer group, and the reverse; describe, list and delete groups of
    both kinds.
    """
    create(side, "a")
    consumer_group(side)
    member = ConsumerMember(side, "g", "m").settle({"a": [0]})
    join(side, "g", label="classic member, consumer group", protocol_type="other")
    join(side, "g", "m", "classic member with a member id of the group", protocol_type="other")
    join(side, "g", label="classic member without a protocol in common", protocols=(("mine", SUBSCRIPTION),))
    heartbeat(side, "g", only_member(side, "classic"), "classic heartbeat of a stranger")
    leave(side, "g", ("nobody", None), label="classic leave of a stranger")
    describe_groups(side, "g", label="a consumer group")
    delete_groups(side, "g", label="a consumer group with a member")
    delete_offsets(side, "g", "a topic to which the member is subscribed")
    delete_offsets(side, "g", "another topic", "b")
    delete_offsets(side, "g", "no partitions", partitions=())
    ConsumerMember(side, "classic", "m").join("new member, classic group", "a")
    ConsumerMember(side, "classic", "m", 1).beat("heartbeat, classic group")
    for version in (0, 1):
        describe_consumer_groups(side, "classic", "none", "", "g", label="all kinds", version=version)
        describe_consumer_groups(side, label="none", version=version)
    describe_consumer_groups(side, "none", "none", label="twice")
    commit_offset(side, "offsets", "a group with only offsets")
    describe_consumer_groups(side, "offsets", label="only offsets")
    ConsumerMember(side, "offsets", "m").join("new member, group with only offsets", "a")
    describe_consumer_groups(side, "offsets", label="a member and offsets")
    _list(side)
    member.leave("the only member leaves")
    describe_groups(side, "g", label="an empty consumer group")
    join(side, "g", label="classic member, empty consumer group")
    describe_groups(side, "g", label="an empty consumer group, after a classic member came")


def _list(side: Side) -> None:
    """List groups by kind and state; only the groups of this scenario are compared."""
    for kinds, states in (
        *((["consumer"], []), (["Consumer"], []), (["classic"], []), (["consumer", "classic"], ["Stable"])),
        *(([], ["Stable"]), ([], ["assigning"]), (["consumer"], ["Empty"])),
    ):
        answer = side.get(ApiKey.LIST_GROUPS, 5, {"types_filter": kinds, "states_filter": states})
        own = [one for one in answer.groups if one.group_id.startswith(side.prefix)]
        found = sorted(
            [side.plain.text(one.group_id), one.protocol_type, one.group_state, one.group_type] for one in own
        )
        side.note(f"ListGroups {kinds} {states}", [answer.error_code, found])


@scenario
def upgrades(side: Side) -> None:
    """Let a member of the new protocol join a group of classic consumers, which becomes a consumer group, and leave it
    again.
    """
    create(side, "a", 2)
    consumer_group(side)
    protocols = (("range", subscription(side.own("a"))),)
    answer = join(side, "g", label="classic member", protocols=protocols)
    answer = join(side, "g", answer.member_id, "classic member, with the id given", protocols=protocols)
    old = Member(answer.member_id, answer.generation_id)
    sync(side, "g", old, [(old.id, assignment(side.own("a"), 0, 1))], "classic member")
    describe_consumer_groups(side, "g", label="classic group")
    new = ConsumerMember(side, "g", "m")
    new.join("new member", "a", rebalance_timeout_ms=1000)
    describe_consumer_groups(side, "g", label="both kinds")
    describe_groups(side, "g", label="both kinds")
    heartbeat(side, "g", old, "classic member learns of the rebalance")
    commit_offset(side, "g", "classic member", generation=old.generation, member=old.id)
    answer = join(side, "g", old.id, "classic member joins again", protocols=protocols)
    old = Member(old.id, answer.generation_id)
    heartbeat(side, "g", old, "classic member, before it has synced")
    sync(side, "g", old, (), "classic member again")
    heartbeat(side, "g", old, "classic member, in the next generation")
    new.beat("new member gets a partition")
    new.reconcile("new member has it")
    describe_consumer_groups(side, "g", label="both kinds, one partition each")
    commit_offset(side, "g", "classic member", generation=old.generation, member=old.id, version=9)
    commit_offset(side, "g", "classic member, other generation", generation=9, member=old.id, version=9)
    new.leave("new member leaves")
    describe_consumer_groups(side, "g", label="classic again")
    await_state(side, "g", "PreparingRebalance")
    heartbeat(side, "g", old, "classic member in the classic group")
    leave(side, "g", (old.id, None), label="classic member leaves")


@scenario
def unreadable_members(side: Side) -> None:
    """Let a member of the new protocol join classic groups whose members cannot become members of a consumer group."""
    create(side, "a")
    create(side, "b")
    consumer_group(side)
    only_member(side, "unreadable")
    ConsumerMember(side, "unreadable", "m").join("assignment of other bytes", "a")
    only_member(side, "other", protocol_type="other")
    ConsumerMember(side, "other", "m").join("another protocol type", "a")
    joined(side, "joining", protocols=(("range", subscription(side.own("a"))),))
    ConsumerMember(side, "joining", "m").join("before the sync", "b")


@scenario
def commits(side: Side) -> None:
    """Commit and fetch offsets with member ids and member epochs, in versions before and after KIP-848; also in a
    transaction.
    """
    create(side, "a", 2)
    consumer_group(side)
    member = ConsumerMember(side, "g", "m").settle({"a": [0, 1]})
    member.beat("another topic, which raises the epoch", topics=["a", "b"])
    member.reconcile("next epoch")
    epochs = (("its epoch", 0), ("next epoch", 1), ("previous epoch", -1), ("epoch before that", -2))
    producer = transactional_producer(side, "t")
    add_offsets(side, producer, "g")
    for label, more in epochs:
        for version in (8, 9, 10):
            epoch = member.epoch + more
            commit_offset(side, "g", label, generation=epoch, member="m", partitions=(0, 1), version=version)
        for version in (9, 10):
            all_offsets(side, "g", label, member="m", epoch=epoch, version=version)
        transaction_offsets.commit(side, producer, "g", label, member="m", generation=epoch)
    for version in (2, 9, 10):
        commit_offset(side, "g", "neither", version=version)
        commit_offset(side, "g", "stranger", generation=member.epoch, member="stranger", version=version)
        commit_offset(side, "g", "no epoch", member="m", version=version)
        commit_offset(side, "g", "no member", generation=member.epoch, version=version)
    for version in (9, 10):
        commit_offset(side, "g", "instance", generation=member.epoch, member="m", instance="i", version=version)
    for who, epoch in (("stranger", member.epoch), ("m", -1), ("", member.epoch), (None, 1), (None, -1), ("", -1)):
        all_offsets(side, "g", f"member {who!r} epoch {epoch}", member=who, epoch=epoch, version=9)
    end_transaction(side, producer, False)
    member.leave("leaves")
    commit_offset(side, "g", "neither, empty group", version=9)
    commit_offset(side, "g", "the member that left", generation=member.epoch, member="m", version=9)
    all_offsets(side, "g", "the member that left", member="m", epoch=member.epoch, version=9)
    all_offsets(side, "g", "at last", version=10)


@scenario
def commits_amid_a_rebalance(side: Side) -> None:
    """Commit offsets of partitions that a member revokes or has revoked (KIP-1251)."""
    create(side, "a", 2)
    consumer_group(side)
    first = ConsumerMember(side, "g", "m").settle({"a": [0, 1]})
    before = first.epoch
    second = ConsumerMember(side, "g", "n")
    second.join("second joins", "a")

    def commit(label: str, who: ConsumerMember, epoch: int) -> None:
        for partition in (0, 1):
            name = f"{label}, partition {partition}"
            commit_offset(
                side, "g", name, generation=epoch, member=who.id, partitions=(partition,), offset=partition, version=9
            )

    commit("first, second has joined", first, before)
    first.beat("first learns what to revoke")
    commit("first revokes", first, before)
    first.reconcile("first has revoked")
    commit("first, old epoch", first, before)
    commit("first, new epoch", first, first.epoch)
    second.beat("second gets a partition")
    commit("second", second, second.epoch)
    commit("second, epoch before it had the partition", second, before)
    commit("first, old epoch, second has the partition", first, before)
