from __future__ import annotations

from pathlib import Path

from oncelog_broker.local_cluster.server_config import ServerPorts, Timing, server_config


def settings(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines())


def test_one_server_has_no_ensemble_settings() -> None:
    config = settings(server_config(Path("/data"), [ServerPorts(2181)], Timing(), is_synced=True))
    assert config["clientPort"] == "2181"
    assert config["clientPortAddress"] == "127.0.0.1"
    assert config["forceSync"] == "yes"
    assert not any(key.startswith("server.") for key in config)


def test_the_servers_of_an_ensemble_know_each_other() -> None:
    ports = [ServerPorts(1, 2, 3), ServerPorts(4, 5, 6)]
    config = settings(server_config(Path("/data"), ports, Timing(250, 500, 9000), is_synced=False))
    assert (config["server.1"], config["server.2"]) == ("127.0.0.1:2:3;127.0.0.1:1", "127.0.0.1:5:6;127.0.0.1:4")
    assert "clientPort" not in config
    assert (config["tickTime"], config["minSessionTimeout"], config["maxSessionTimeout"]) == ("250", "500", "9000")
    assert config["forceSync"] == "no"
