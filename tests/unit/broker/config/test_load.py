import subprocess
import sys

import pytest

from oncelog_broker.config.broker_keys import AUTO_CREATE_TOPICS_ENABLE, LISTENERS, NUM_PARTITIONS
from oncelog_broker.config.declared import InvalidConfig
from oncelog_broker.config.load import environment_settings, file_settings, load_broker_config, without_settings
from oncelog_broker.config.topic_defaults import LOG_CLEANUP_POLICY, LOG_RETENTION_HOURS


def test_the_defaults_hold_without_any_setting():
    assert load_broker_config()[NUM_PARTITIONS] == 1


def test_sources_of_settings_have_an_order_of_precedence(tmp_path):
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=2\nlog.retention.hours=2\nlog.cleanup.policy=compact\n")
    environment = {"ONCELOG_NUM_PARTITIONS": "3", "ONCELOG_LOG_RETENTION_HOURS": "3", "PATH": "/bin"}
    config = load_broker_config(file, environment, ["num.partitions = 4"])
    assert config[NUM_PARTITIONS] == 4
    assert config[LOG_RETENTION_HOURS] == 3
    assert config[LOG_CLEANUP_POLICY] == ("compact",)


def test_the_last_assignment_holds():
    assert load_broker_config(assignments=["num.partitions=4", "num.partitions=5"])[NUM_PARTITIONS] == 5


def test_settings_are_read_from_properties_files(tmp_path):
    file = tmp_path / "server.properties"
    file.write_text("# comment\nlisteners = PLAINTEXT://a:1,\\\n  PLAINTEXT2://b:2\nauto.create.topics.enable: FALSE\n")
    config = load_broker_config(file)
    assert config[LISTENERS] == ("PLAINTEXT://a:1", "PLAINTEXT2://b:2")
    assert config[AUTO_CREATE_TOPICS_ENABLE] is False


def test_settings_are_read_from_toml(tmp_path):
    file = tmp_path / "broker.toml"
    file.write_text(
        'listeners = ["PLAINTEXT://a:1"]\nnum.partitions = 6\n[log]\ncleanup.policy = "compact, delete"\n'
        "[log.retention]\nhours = 24\n[auto.create.topics]\nenable = false\n"
    )
    config = load_broker_config(file)
    assert config[LISTENERS] == ("PLAINTEXT://a:1",)
    assert config[NUM_PARTITIONS] == 6
    assert config[LOG_CLEANUP_POLICY] == ("compact", "delete")
    assert config[LOG_RETENTION_HOURS] == 24
    assert config[AUTO_CREATE_TOPICS_ENABLE] is False


@pytest.mark.parametrize(
    ("file_name", "content"),
    [
        ("a.toml", b"num.partitions = "),
        ("a.toml", b"\xff"),
        ("a.toml", b"num.partitions = 1979-05-27"),
        ("a.properties", b"\xff"),
        ("a.properties", b"num.partitions=\\u12"),
    ],
)
def test_unreadable_files_are_refused(file_name, content):
    with pytest.raises(InvalidConfig, match=f"{file_name} cannot be read"):
        file_settings(file_name, content)


def test_environment_of_kafkas_container_image():
    environment = {
        "ONCELOG_NUM_PARTITIONS": "3",
        "KAFKA_NUM_PARTITIONS": "2",
        "KAFKA_AUTO_CREATE_TOPICS_ENABLE": "false",
        "KAFKA_HEAP_OPTS": "-Xmx1G",
    }
    config = load_broker_config(environment=environment)
    assert config[NUM_PARTITIONS] == 3
    assert config[AUTO_CREATE_TOPICS_ENABLE] is False
    assert [setting.name for setting in environment_settings(environment)] == [
        "num.partitions",
        "auto.create.topics.enable",
        "num.partitions",
    ]


def test_variables_of_other_commands_are_no_broker_settings():
    set_for_others = {
        "ONCELOG_BOOTSTRAP_SERVER": "127.0.0.1:9092",
        "ONCELOG_FAIL_POINTS": "append = crash",
        "ONCELOG_ZOOKEEPER_CLASSPATH": "/opt/zookeeper/lib/*",
    }
    assert environment_settings(set_for_others) == []


def test_variables_that_others_set_with_our_prefix_stop_no_broker(caplog):
    """Kubernetes sets variables with the prefix ONCELOG_ for a service named oncelog; Helm charts and scripts also set
    variables with that prefix.
    """
    of_kubernetes = {
        "ONCELOG_PORT": "tcp://10.0.0.1:9092",
        "ONCELOG_SERVICE_HOST": "10.0.0.1",
        "ONCELOG_SERVICE_PORT": "9092",
        "ONCELOG_SERVICE_PORT_CLIENTS": "9092",
        "ONCELOG_PORT_9092_TCP": "tcp://10.0.0.1:9092",
        "ONCELOG_PORT_9092_TCP_ADDR": "10.0.0.1",
        "ONCELOG_HEADLESS_SERVICE_HOST": "10.0.0.1",
    }
    assert environment_settings(of_kubernetes) == []
    assert caplog.records == []
    assert load_broker_config(environment={"ONCELOG_HOME": "/opt", "ONCELOG_LOG_LEVEL": "debug"})
    assert [record.variable for record in caplog.records] == ["ONCELOG_HOME", "ONCELOG_LOG_LEVEL"]


@pytest.mark.parametrize("variable", ["ONCELOG_NUM_PARTITON", "ONCELOG_LISTENER", "ONCELOG_LOG_RETENTION_HOUR"])
def test_a_misspelt_variable_is_refused(variable):
    with pytest.raises(InvalidConfig, match=rf"did you mean .*\? \(from environment variable {variable}\)"):
        load_broker_config(environment={variable: "1"})


def test_a_broker_of_a_test_takes_no_settings_from_the_environment():
    environment = {"PATH": "/bin", "ONCELOG_NUM_PARTITIONS": "3", "KAFKA_BROKER_ID": "1", "ONCELOG_PORT": "tcp://x"}
    kept = {"ONCELOG_FAIL_POINTS": "append = crash"}
    assert without_settings(environment | kept) == {"PATH": "/bin"} | kept


def test_mistakes_are_reported_together_with_key_value_source_and_remedy(tmp_path):
    file = tmp_path / "server.properties"
    file.write_text("num.partitons=2\nlog.retention.hours=soon\n")
    with pytest.raises(InvalidConfig) as caught:
        load_broker_config(file, {"ONCELOG_MAX_CONECTIONS": "5"}, ["num.partitions=0"])
    assert str(caught.value).splitlines() == [
        "Unknown configuration num.partitons: did you mean num.partitions? (from server.properties)",
        "Invalid value 'soon' for configuration log.retention.hours: expected a 32-bit integer, at least -1 "
        "(from server.properties)",
        "Unknown configuration max.conections: did you mean max.connections? "
        "(from environment variable ONCELOG_MAX_CONECTIONS)",
        "Invalid value '0' for configuration num.partitions: expected a 32-bit integer, at least 1 (from --set)",
    ]


def test_a_mistake_that_is_replaced_does_not_matter():
    assert load_broker_config(assignments=["num.partitions=x", "num.partitions=2"])[NUM_PARTITIONS] == 2


def test_an_assignment_needs_an_equals_sign():
    with pytest.raises(InvalidConfig, match="key=value"):
        load_broker_config(assignments=["num.partitions"])


def test_a_file_that_does_not_exist_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        load_broker_config(tmp_path / "none")


def test_readers_are_imported_only_for_a_file():
    code = (
        "import sys; from oncelog_broker.config.load import load_broker_config; load_broker_config();"
        "sys.exit(bool({'javaproperties', 'tomllib', 'difflib'} & sys.modules.keys()))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
