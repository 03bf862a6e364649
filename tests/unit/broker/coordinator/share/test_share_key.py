"""The text of a share partition's key can be parsed again."""

from __future__ import annotations

import pytest

from oncelog_broker.coordinator.share.share_key import ShareKey

TOPIC_ID = bytes(range(16))


@pytest.mark.parametrize("group_id", ["g", "a:b", "::"])
def test_a_name_is_read_as_it_was_written(group_id: str) -> None:
    key = ShareKey(group_id, TOPIC_ID, 7)
    assert key.text == f"{group_id}:AAECAwQFBgcICQoLDA0ODw:7"
    assert ShareKey.of_text(key.text) == key


@pytest.mark.parametrize(
    "text", ["", "g", "g:AAECAwQFBgcICQoLDA0ODw", ":AAECAwQFBgcICQoLDA0ODw:0", "g:x:0", "g:AAECAwQFBgcICQoLDA0ODw:-1"]
)
def test_what_names_no_share_partition(text: str) -> None:
    with pytest.raises(ValueError, match=r"no group:topicId:partition|a uuid has"):
        ShareKey.of_text(text)
