import pytest

from oncelog.serialization import SerializationContext, SerializationError, record_name, topic_name, topic_record_name


def test_the_three_strategies_name_subjects_as_the_confluent_serializers_do() -> None:
    value, key = SerializationContext("orders"), SerializationContext("orders", is_key=True)
    assert (topic_name(value, "a.Order"), topic_name(key, "a.Order")) == ("orders-value", "orders-key")
    assert topic_name(value, None) == "orders-value"
    assert record_name(value, "a.Order") == "a.Order"
    assert topic_record_name(value, "a.Order") == "orders-a.Order"
    for strategy in (record_name, topic_record_name):
        with pytest.raises(SerializationError, match="no name"):
            strategy(value, None)
