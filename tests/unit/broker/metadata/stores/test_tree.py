"""The embedded store represents nodes and transactions as plain values."""

import pytest

from oncelog_broker.metadata.stores.store import Create, Delete, NotEmpty, Set
from oncelog_broker.metadata.stores.tree import Transaction, Tree


def applied(tree, *operations, zxid=1):
    transaction = Transaction(tree.node, zxid)
    for operation in operations:
        transaction.apply(operation)
    return transaction


def test_a_transaction_leaves_the_tree_alone_until_it_is_applied():
    tree = Tree()
    transaction = applied(tree, Create("/a", b"x"))
    assert tree.node("/a") is None
    assert tree.children("/") == []
    assert tree.apply(transaction.changes) == ["/a"]
    assert tree.node("/a").data == b"x"
    assert tree.children("/") == ["a"]


def test_a_transaction_on_top_of_another_sees_its_changes():
    tree = Tree()
    lower = applied(tree, Create("/a"))
    upper = Transaction(lower.node, 2)
    upper.apply(Create("/a/b"))
    with pytest.raises(NotEmpty):
        upper.apply(Delete("/a"))
    assert lower.node("/a").child_count == 0


def test_only_nodes_whose_content_changed_are_touched():
    tree = Tree([("/a", b"", 0, 1)])
    assert tree.apply(applied(tree, Create("/a/b"), zxid=2).changes) == ["/a/b"]
    assert tree.apply(applied(tree, Set("/a", b"x"), Delete("/a/b"), zxid=3).changes) == ["/a", "/a/b"]
    assert tree.apply(applied(tree, Create("/c"), Delete("/c"), zxid=4).changes) == []


def test_child_counts_survive_loading_and_deleting():
    tree = Tree([("/a/b", b"", 0, 2), ("/a", b"", 0, 1)])
    assert tree.node("/a").child_count == 1
    tree.apply(applied(tree, Delete("/a/b"), zxid=3).changes)
    tree.apply(applied(tree, Delete("/a"), zxid=4).changes)
    assert tree.children("/") == []
    assert tree.children("/a") == []


def test_a_node_without_its_parent_is_damage():
    with pytest.raises(ValueError, match="/a has children but does not exist"):
        Tree([("/a/b", b"", 0, 1)])
