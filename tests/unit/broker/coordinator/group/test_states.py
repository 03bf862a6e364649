"""The table of legal state transitions of a group, tested for each pair of states."""

import pytest

from oncelog_broker.coordinator.group.states import LEGAL_PREVIOUS, GroupState, IllegalTransition, check_transition

EMPTY, PREPARING, COMPLETING, STABLE, DEAD = GroupState

ILLEGAL = {
    (DEAD, EMPTY),
    (DEAD, STABLE),
    (DEAD, PREPARING),
    (DEAD, COMPLETING),
    (PREPARING, PREPARING),
    (EMPTY, COMPLETING),
    (STABLE, COMPLETING),
    (COMPLETING, COMPLETING),
}


@pytest.mark.parametrize("before", GroupState)
@pytest.mark.parametrize("after", GroupState)
def test_every_edge_of_the_group_states_is_allowed_or_refused(before, after):
    if (before, after) in ILLEGAL:
        with pytest.raises(IllegalTransition, match=f"{after.value} must not follow {before.value}"):
            check_transition("g", before, after)
    else:
        check_transition("g", before, after)


def test_the_table_speaks_of_every_state():
    assert set(LEGAL_PREVIOUS) == set(GroupState)
    assert [state.value for state in GroupState] == [
        "Empty",
        "PreparingRebalance",
        "CompletingRebalance",
        "Stable",
        "Dead",
    ]
