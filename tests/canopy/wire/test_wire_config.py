"""Configuration: flags over environment over file over default, and every mistake has its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from canopy.wire.addresses import join_address, split_address
from canopy.wire.config import ConfigError, NodeConfig, load_config, unknown_variables
from overlay.settings import Settings


def load(tmp_path: Path, text: str, **more: Any) -> NodeConfig:
    file = tmp_path / "node.yaml"
    file.write_text(text)
    return load_config(file, **more)


def test_nothing_said_gives_the_defaults() -> None:
    config = load_config()
    assert config == NodeConfig()
    assert config.settings == Settings()
    assert config.listen.startswith("127.0.0.1:")


def test_flags_over_environment_over_file_over_default(tmp_path: Path) -> None:
    file = "name: file\ntier: 1\nregion: file\ntree: {split_at: 7, retry: 7}\n"
    environment = {
        "CANOPY_TIER": "2",
        "CANOPY_REGION": "environment",
        "CANOPY_TREE__SPLIT_AT": "8",
        "CANOPY_TREE__ROUTING": "counting",
    }
    flags = {"region": "flag", "name": None, "tree": {"split_at": 9}}
    config = load(tmp_path, file, environment=environment, flags=flags)
    assert (config.name, config.tier, config.region) == ("file", 2, "flag")
    tree = config.tree
    assert (tree.split_at, tree.retry, tree.routing, tree.lease) == (9, 7.0, "counting", 60.0)


def test_environment_values_get_the_type_of_their_key() -> None:
    config = load_config(
        environment={
            "CANOPY_PEERS": "127.0.0.1:1, 127.0.0.1:2,",
            "CANOPY_DIRECTORY": "false",
            "CANOPY_TRACE__SAMPLE": "0.5",
            "CANOPY_NAME": "123",
            "CANOPY_CONNECT": "not a key of a node",
            "HOME": "/",
        }
    )
    assert config.peers == ("127.0.0.1:1", "127.0.0.1:2")
    assert (config.directory, config.trace.sample, config.name) == (False, 0.5, "123")


def test_folders_follow_from_data(tmp_path: Path) -> None:
    config = load_config(flags={"data": str(tmp_path)})
    assert (config.folder, config.trace_folder) == (tmp_path, tmp_path / "traces")
    elsewhere = load_config(flags={"data": "x", "trace": {"dir": str(tmp_path)}})
    assert elsewhere.trace_folder == tmp_path


WRONG = {
    "lisen: 127.0.0.1:1": ["lisen", "did you mean listen"],
    "tree: {routng: pivot}": ["tree.routng", "did you mean routing"],
    "zzz: 1": ["zzz", "known are", "listen"],
    "tier: high": ["tier", "expected a whole number", "a text"],
    "tier: 101": ["tier", "<= 100"],
    "tree: {routing: 3}": ["tree.routing", "pivot, counting"],
    "tree: {routing: fast}": ["tree.routing", "fast", "pivot, counting"],
    "links: {heartbeat: 0}": ["links.heartbeat", "> 0"],
    "trace: {sample: 1.5}": ["trace.sample", "<= 1"],
    "tree: 5": ["tree", "a group of keys"],
    "peers: 127.0.0.1:1": ["peers", "a list"],
    "peers: [1]": ["peers[0]", "a text"],
    "directory: 'yes'": ["directory", "true or false"],
    "name: [": ["line 2", "invalid YAML"],
    "name: a\nname: b": ["line 2", "given twice"],
    "- 1": ["expected a mapping"],
    "1: 2": ["a key must be a text"],
    "? [a]\n: 1": ["invalid YAML"],
    "!!python/object/apply:os.getpid []": ["invalid YAML"],
    "name: \x00": ["invalid YAML"],
    "[" * 2_000: ["invalid YAML"],
}


@pytest.mark.parametrize("text", WRONG, ids=lambda text: text[:30])
def test_a_mistake_in_the_file_names_file_key_and_what_is_expected(
    tmp_path: Path, text: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        load(tmp_path, text + "\n")
    for part in ["node.yaml", *WRONG[text]]:
        assert part in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("region", ["eu//de", "/eu", "eu/", "eu/ de"])
def test_a_region_is_names_joined_by_slashes(region: str) -> None:
    with pytest.raises(ConfigError, match=r"^region: .*names joined by /"):
        load_config(flags={"region": region})
    assert load_config(flags={"region": "eu/de"}).region == "eu/de"


@pytest.mark.parametrize("name", ["x/y", "", "two words", "a" * 65])
def test_an_overlay_has_a_name_that_certificates_take(name: str) -> None:
    with pytest.raises(ConfigError, match=r"^overlay: .*1 to 64 letters, digits"):
        load_config(flags={"overlay": name})
    assert load_config(flags={"overlay": "acme-2.test_a"}).overlay == "acme-2.test_a"


def test_a_file_that_is_not_there_and_one_that_is_no_text(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load_config(tmp_path / "absent.yaml")
    (tmp_path / "binary").write_bytes(b"name: \xc3\x28")
    with pytest.raises(ConfigError, match="invalid YAML"):
        load_config(tmp_path / "binary")


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"CANOPY_TIER": "x"}, "environment: CANOPY_TIER: expected a whole number"),
        ({"CANOPY_TREE__ROUTNG": "x"}, "environment: CANOPY_TREE__ROUTNG: unknown key"),
        ({"CANOPY_TREE": "x"}, "CANOPY_TREE__KEY"),
        ({"CANOPY_NAME__X": "x"}, "not a group"),
    ],
)
def test_a_mistake_in_the_environment_names_the_variable(
    environment: dict[str, str], expected: str
) -> None:
    with pytest.raises(ConfigError, match=expected):
        load_config(environment=environment)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({"links": {"frame": 1 << 20}}, r"links\.frame"),  # it would not fit into a frame
        ({"listen": "7000"}, "HOST:PORT"),
        ({"listen": "127.0.0.1:x"}, "not a port"),
        ({"listen": "127.0.0.1:65536"}, "not a port"),
        ({"listen": "::1:7000"}, "brackets"),
        ({"peers": ["127.0.0.1:0"]}, "port 0"),
        ({"peers": ["nobody"]}, "peers"),
        ({"peers": ["a b:1"]}, "peers: 'a b:1': 'a b' is not a host"),
        ({"peers": ["a/b:1"]}, "is not a host"),
        ({"listen": "0.0.0.0:1"}, "--insecure"),
        ({"listen": "192.0.2.1:1"}, "--insecure"),
        ({"listen": "example.org:1"}, "--insecure"),
        ({"listen": "0.0.0.0:1", "insecure": True}, "advertise"),
        ({"listen": "0:1", "insecure": True}, "advertise"),
        ({"listen": "[0::0]:1", "insecure": True}, "advertise"),
    ],
)
def test_addresses_and_sizes_are_checked(flags: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        load_config(flags=flags)


def test_beyond_loopback_it_listens_when_configured() -> None:
    flags = {"listen": "0.0.0.0:1", "insecure": True, "advertise": "192.0.2.1:1"}
    assert load_config(flags=flags).advertise == "192.0.2.1:1"


@pytest.mark.parametrize(
    "address", ["127.0.0.1:1", "[::1]:65535", "[fe80::1%eth0]:1", "bücher.example:2", "localhost:0"]
)
def test_addresses_come_apart_and_together(address: str) -> None:
    assert join_address(*split_address(address)) == address


def test_variables_that_are_no_keys_are_named_with_the_one_that_was_meant() -> None:
    environment = {
        "CANOPY_FOO": "x",
        "CANOPY_LISTN": "127.0.0.1:1",
        "CANOPY_TREE__ROUTING": "pivot",
        "CANOPY_CONNECT": "/tmp",
        "HOME": "/",
    }
    first, second = unknown_variables(environment)
    assert first == "CANOPY_FOO is no key of the configuration, and is ignored"
    assert second.endswith("is ignored; did you mean CANOPY_LISTEN?")
