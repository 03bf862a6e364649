import pytest

from oncelog.fail_points.specification import Action, InvalidFailPoints, Kind, Rule, parse_action, parse_specification

POINTS = ("append", "reply-sent")


def test_rules_are_parsed() -> None:
    rules = parse_specification(
        "append = crash; append@2=after delay 100;reply-sent@1 = before drop;"
        "reply-sent=ask /tmp/a place; append = duplicate; append = reorder;",
        POINTS,
    )
    assert rules == [
        Rule("append", None, False, Action(Kind.CRASH)),
        Rule("append", 2, True, Action(Kind.DELAY, delay_ms=100)),
        Rule("reply-sent", 1, False, Action(Kind.DROP)),
        Rule("reply-sent", None, False, Action(Kind.ASK, socket_path="/tmp/a place")),
        Rule("append", None, False, Action(Kind.DUPLICATE)),
        Rule("append", None, False, Action(Kind.REORDER)),
    ]
    assert parse_specification(" ; ", POINTS) == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("append", "is not point[@hit] = [before|after] action"),
        ("append@x = crash", "is not point[@hit] = [before|after] action"),
        ("append@0 = crash", "the first hit is 1"),
        ("apend = crash", "unknown fail point 'apend'; known: append, reply-sent"),
        ("append = explode", "unknown action 'explode'; known: go, crash, delay, drop, duplicate, reorder, ask"),
        ("append = delay", "delay takes milliseconds, not ''"),
        ("append = delay soon", "delay takes milliseconds, not 'soon'"),
        ("append = crash now", "crash takes nothing, not 'now'"),
        ("append = ask", "ask takes the path of a unix socket"),
        ("append = after drop", "after a step it is too late to drop it"),
    ],
)
def test_a_bad_rule_is_named_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(InvalidFailPoints) as caught:
        parse_specification(f"reply-sent = crash; {text}", POINTS)
    assert str(caught.value).startswith(f"{text!r}")
    assert reason in str(caught.value)


def test_an_answer_is_an_action() -> None:
    assert parse_action("go") == Action(Kind.GO)
    assert parse_action("delay 5") == Action(Kind.DELAY, delay_ms=5)
