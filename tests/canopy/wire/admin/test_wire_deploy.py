"""What deploy/ starts exists: commands with their options, settings, files, ports, services."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import pytest
import yaml

from canopy.cli.main import canopy, main

DEPLOY = Path(__file__).parents[4] / "deploy"
COMPOSE = DEPLOY / "compose" / "compose.yaml"
KUBERNETES = DEPLOY / "kubernetes" / "canopy.yaml"
CONTAINER = DEPLOY / "container" / "Containerfile"
NODE = ("canopy", "node")
SHELL = ["sh", "-ec"]


def in_script(text: str) -> Iterator[list[str]]:
    """The words of each canopy command of a shell script."""
    for found in re.finditer(r"\bcanopy [a-z][^;|&>\n]*", text):
        yield shlex.split(found[0])


def started(
    entry: Sequence[str] | None, words: Sequence[str], image: Sequence[str]
) -> Iterator[list[str]]:
    """The canopy commands that a container carries out."""
    if entry == SHELL:
        yield from in_script(words[0])
    else:
        yield [*(entry or image), *words]


def require(words: Sequence[str]) -> None:
    """Fail unless the command exists and has these options."""
    assert words[0] == "canopy"
    command: click.Command = canopy
    context = click.Context(command, info_name="canopy")
    rest = list(words[1:])
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        found = command.get_command(context, rest[0])
        if found is None:
            break
        command, context = found, click.Context(found, parent=context)
        rest.pop(0)
    assert command is not canopy, words
    command.make_parser(context).parse_args(rest)


def test_the_parts_of_compose_fit_together() -> None:
    made = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))
    services, image = made["services"], re.search(r"^ENTRYPOINT (.*)$", CONTAINER.read_text(), re.M)
    assert image is not None
    commands = []
    for service in services.values():
        assert set(service.get("depends_on", ())) <= set(services)
        if service["image"] == "canopy":
            commands += started(
                service.get("entrypoint"), service.get("command", ()), yaml.safe_load(image[1])
            )
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            here = (
                (COMPOSE.parent / source).exists() if "/" in source else source in made["volumes"]
            )
            assert here, f"no {source}"
    for words in commands:
        require(words)
    nodes = [words for words in commands if tuple(words[:2]) == NODE]
    assert len(nodes) == 3
    for words in nodes:
        host, port = words[words.index("--advertise") + 1].split(":")
        assert host in services
        assert words[words.index("--listen") + 1].endswith(f":{port}")
    scraped = yaml.safe_load((COMPOSE.parent / "prometheus.yml").read_text(encoding="utf-8"))
    (job,) = scraped["scrape_configs"]
    metrics = services["first"]["environment"]["CANOPY_METRICS__LISTEN"].rpartition(":")[2]
    assert job["static_configs"][0]["targets"] == [
        f"{name}:{metrics}" for name in ("first", "second", "third")
    ]


def test_the_stateful_set_starts_nodes_that_find_each_other() -> None:
    service, budget, nodes = yaml.safe_load_all(KUBERNETES.read_text(encoding="utf-8"))
    pod = nodes["spec"]["template"]
    labels = pod["metadata"]["labels"]
    assert nodes["spec"]["serviceName"] == service["metadata"]["name"]
    assert service["spec"]["selector"] == labels
    for each in (nodes, budget):
        assert each["spec"]["selector"]["matchLabels"] == labels
    (container,) = pod["spec"]["containers"]
    assert container["command"] == SHELL
    commands = list(in_script(container["args"][0]))
    for words in commands:
        require(words)
    words = commands[-1]
    assert tuple(words[:2]) == NODE
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert words[words.index("--listen") + 1].endswith(f":{ports['nodes']}")
    assert words[words.index("--metrics") + 1].endswith(f":{ports['metrics']}")
    name = nodes["metadata"]["name"]
    assert words[words.index("--advertise") + 1] == f"$HOSTNAME.{name}:{ports['nodes']}"
    for probe, path in (("livenessProbe", "/livez"), ("readinessProbe", "/readyz")):
        assert container[probe]["httpGet"] == {"path": path, "port": "metrics"}


def test_settings_of_containers_are_known(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = [path.read_text(encoding="utf-8") for path in (COMPOSE, KUBERNETES, CONTAINER)]
    named = {name for text in texts for name in re.findall(r"CANOPY_[A-Z_]+", text)}
    assert named == {"CANOPY_METRICS__LISTEN", "CANOPY_DATA", "CANOPY_CONNECT", "CANOPY_JOIN"}
    monkeypatch.setenv("CANOPY_METRICS__LISTEN", "127.0.0.1:9470")
    monkeypatch.setenv("CANOPY_DATA", str(tmp_path))
    monkeypatch.setenv("CANOPY_CONNECT", str(tmp_path))
    assert main(["config", "check"]) == 0
    assert "listen: 127.0.0.1:9470" in capsys.readouterr().out


def test_the_container_has_the_sources_of_the_package() -> None:
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", CONTAINER.read_text(encoding="utf-8"), re.M)
    sources = {name for names in copied for name in names.split()}
    assert {"canopy", "overlay", "matching", "streams", "node.py"} < sources
    assert all((DEPLOY.parent / name).exists() for name in sources)
