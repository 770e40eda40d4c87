"""A node's configuration: a YAML file, ``CANOPY_…`` environment variables, and flags.

Flags override the environment, which overrides the file (docs/reference/configuration.md). All
three have the same keys and go through one typed conversion, so that an unknown key, a wrong type
or a value out of bounds is refused with its source, its place and the expected value.

In the file the groups of `overlay.settings` are mappings of their own (``tree: {routing:
counting}``); in the environment a group and its key are joined by two underscores
(``CANOPY_TREE__ROUTING=counting``), and lists are separated by commas. Variables that name no key
are ignored, since other commands have theirs.
"""

from __future__ import annotations

import typing
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import yaml
from msgspec import Meta

from canopy.wire.addresses import is_every_address, is_loopback, split_address
from canopy.wire.constants import CONFIG_FILE_LIMIT, NAME, NAMED
from canopy.wire.folder import default_folder
from overlay.links.messages import MAX_BODY, OLDEST_PROTOCOL, PROTOCOL
from overlay.machine import Region, Tier
from overlay.phrases import as_argument
from overlay.settings import Bytes, Count, Seconds, Settings, SettingsGroup
from overlay.upper_tree.publisher.admission import Otherwise

ENVIRONMENT: Final = "CANOPY_"
FROM_ENVIRONMENT: Final = "environment"
OTHER_VARIABLES: Final = ("CONNECT", "DEBUG", "FAULT", "SEAL", "WAIT")
"""Variables of the commands and of the tests (bench/mutations) that are not keys."""

DEFAULT_LISTEN: Final = "127.0.0.1:4470"  # a port that IANA has not assigned

PLAIN_WORDS: Final = {
    "`array`": "a list",
    "`object`": "a group of keys",
    "`str`": "a text",
    "`int`": "a whole number",
    "`float`": "a number",
    "`bool`": "true or false",
    "invalid enum value": "unknown choice",
    "Invalid enum value": "unknown choice",
}
"""msgspec's words for types, and the words that the user sees instead."""

SHORT_FORMS: Final = {"log": "level"}
"""Groups that may be given as one value, and the key of that value: ``log: debug``."""

Name = Annotated[str, Meta(max_length=200)]


class ConfigError(Exception):
    """The configuration is invalid; the message says where (source and key) and why."""


class TraceConfig(SettingsGroup, frozen=True):
    """Trace records."""

    dir: str = ""
    """Folder of the trace files, which `canopy trace analyze` reads. Nodes of one user may share
    it; a link, or another user's folder, is refused, and others lose their right to write in it.
    Empty: `traces` in the data folder. Flag `--trace-dir`."""
    sample: Annotated[float, Meta(ge=0, le=1)] = 1.0
    """The largest share of events whose records are kept, 0 to 1; the same events on all nodes.
    Flag `--trace-sample`."""
    rate: Annotated[float, Meta(ge=0)] = 100.0  # a traced event costs as much as three that are
    # not, or eleven where it matches a hundred subscriptions (docs/lab/performance.md)
    """Events per second published by this node whose records are kept. If there are more, a share
    is kept, the same one at all nodes on an event's way; 0: no limit. The same limit holds for rows
    of streams that this node commits as their leader, and for rows that it hands to durable
    consumers. Flag `--trace-rate`."""
    enabled: bool = True
    """Write trace records. Without them nothing can be proved afterwards; `canopy why` still works.
    Flag `--trace`."""
    redact: bool = False
    """Write no values of attributes and no selectors: names of attributes are kept, values become
    hashes under a key that is never written. The analysis then judges losses on the way, duplicates
    and latencies, and reports as *unjudged* what depends on selectors."""
    stream: Annotated[str, Meta(max_length=200)] = ""
    """A stream that receives the records as well, from the files, within a second or two
    ([operate](docs/guide/operate.md#traces-in-a-stream)); empty: none."""


class LogConfig(SettingsGroup, frozen=True):
    """Lines on standard error. `log: debug` is short for `log: {level: debug}`, and
    `CANOPY_LOG=debug` for `CANOPY_LOG__LEVEL=debug`."""

    level: typing.Literal["debug", "info", "warning", "error"] = "info"
    """The least severe lines that are logged: `debug`, `info`, `warning` or `error`. Flag
    `--log`."""
    format: typing.Literal["logfmt", "json"] = "logfmt"
    """`logfmt`: time, level, event and `key=value` pairs; `json`: one object per line with the same
    fields and `time`, `level`, `event`. Flag `--log-format`."""


class MetricsConfig(SettingsGroup, frozen=True):
    """[Monitoring over HTTP](docs/guide/operate.md#metrics)."""

    listen: str = ""
    """HOST:PORT that serves `/metrics` (Prometheus), `/livez` and `/readyz`, without TLS and
    without authentication; port 0: a free one, which the log names; empty: none. It shows no events
    and no selectors. Beyond loopback let only the monitoring network reach it. Flag `--metrics`."""


class HealthConfig(SettingsGroup, frozen=True):
    """[Health records and the health file](docs/design/health.md)."""

    period: Seconds = 10.0  # guess
    """Seconds between two measurements of the node's health, which it judges and records in its
    traces. `canopy trace health` expects twelve in two minutes: a node with a period above 20 seems
    to stand still."""
    file: str = ""
    """The health file that `canopy trace health` writes; nodes prefer those that it calls healthy.
    Empty: they use what nodes report of themselves."""
    max_age: Seconds = 600.0  # ten rounds of `canopy trace health --follow`; guess
    """Seconds after its newest record from which a health file is stale and has no effect."""


class ClientConfig(SettingsGroup, frozen=True):
    """Programs that connect to the node."""

    queue: Bytes = 4 << 20  # as `links.window`, so that one link's output need not be dropped
    """Bytes of deliveries that wait for one program; further ones are dropped, counted and reported
    to the program. Raise it for programs that pause and catch up."""
    programs: Count = 256  # guess; memory of so many that consume nothing would measure it
    """Connections of programs at a time (a program has one for its commands and one for each feed
    of events); further ones are refused with the reason *too many programs* and counted
    (`clients_refused`)."""
    resume: Annotated[float, Meta(ge=0, le=86_400)] = 30.0  # longer than a program takes to
    # restart, and than its library waits between attempts (8 s); half of `tree.lease`; guess
    """Seconds for which the session of a program that lost its connection is kept: its
    subscriptions go on, and deliveries wait (`queue`). Deliveries also go to a killed program for
    this time. 0: subscriptions end with the connection."""
    parked: Annotated[int, Meta(ge=0, le=1_000_000)] = 64  # guess
    """Sessions without a connection that are kept at a time; beyond, the oldest of them ends."""
    listen: str = ""
    """HOST:PORT for programs on other machines, in TLS, for those with a token
    ([guide](docs/guide/security.md#programs-on-other-machines)); port 0: any free one; empty: none.
    Needs the node's keys."""


class SchemaConfig(SettingsGroup, frozen=True):
    """[JSON Schemas](docs/reference/formats.md#schemas) of events that the node's programs publish
    and append. The files are read again by `canopy reload`."""

    dir: str = ""
    """The folder with a JSON Schema `TYPE.json` for the events of a type; needs the extra
    *schema*."""
    otherwise: Otherwise = "refuse"
    """The treatment of events that do not conform: `refuse`; `park`: an event of the type
    `schema.parked` is published instead, with the event as its payload; `count`: published, and
    counted."""


class NodeConfig(Settings, frozen=True):
    """A node's configuration; the groups of `Settings` are fields of it."""

    listen: str = DEFAULT_LISTEN
    """HOST:PORT on which other nodes reach this one; port 0: any free one. For a second node on a
    machine change the port; for nodes on other machines the host (and see the
    [keys](docs/guide/security.md)). Flag `--listen`."""
    advertise: str = ""
    """HOST:PORT that others are given instead of `listen`. Set it where they reach this node under
    another address: behind NAT, in a container, or if it listens on 0.0.0.0. Flag `--advertise`."""
    peers: tuple[str, ...] = ()
    """Addresses (HOST:PORT) of nodes to join at, two or three that are up most of the time;
    redialled for ever. Added ones are dialled at once, removed ones until the next start. Without
    any the node founds an overlay. Flag `--peer`, repeatable."""
    data: str = ""
    """The data folder: identity, state, control socket, traces. Empty:
    `~/.local/share/canopy/default`, or under `$XDG_DATA_HOME`. Each node needs one of its own,
    which survives restarts and is never copied. Flag `--data`."""
    name: Name = ""
    """A name for people, at most 200 characters; shown in `canopy status`, traces and reports. It
    need not be unique. Flag `--name`."""
    overlay: str = "canopy"
    """The overlay's name: 1 to 64 letters, digits, dots, dashes or underscores. Nodes of different
    overlays refuse each other; set it where a test overlay must never join the real one. Flag
    `--overlay`."""
    insecure: bool = False
    """Listen beyond loopback without key and certificate: any program that reaches the port can
    join and read events. Only in a network that you trust; logged once an hour. Flag
    `--insecure`."""
    join: str = ""
    """`@PATH` of a private file (0600) with a token of `canopy keys invite`, or the token: the node
    gets a certificate with it, unless it has one. `canopy config check` does not show it. Flag
    `--join` (a token there is visible among the process's arguments until the node has overwritten
    it)."""
    drain_timeout: Seconds = 10.0  # guess, to be measured by the time that a primary with full logs
    # takes to hand over its arc
    """Most seconds that a stopping node takes to hand over and to finish. Raise it if its log says
    that events were left; keep it below what the service manager waits."""
    directory: bool = True
    """Use the Kademlia directory, in which nodes find each other when no peer answers: with
    [keys](docs/design/security.md#the-directory) on the UDP port with the number of `listen`,
    without them on loopback only, for the nodes of one machine. Turn it off where nodes must not
    find each other or must not open a UDP port. Flag `--directory`."""
    mdns: bool = False
    """Find other nodes of the overlay on the [local
    network](docs/design/security.md#the-local-network) by multicast DNS, and let them find this
    one. Needs keys, and the extra *mdns*. Flag `--mdns`."""
    seed: int | None = None
    """Seed of the node's random choices, for repeatable experiments; null: from the system. Flag
    `--seed`."""
    region: Region = ""
    """The node's region: names joined by `/` (`eu`, `eu/de`), up to 64 characters, the same at all
    nodes of one place; empty: no region. An event crosses into each region once and is forwarded
    there ([why](docs/design/regions.md)). Flag `--region`."""
    tier: Tier = 0
    """0 to 100: events for a region arrive at a node with the highest tier first, which forwards
    them. Flag `--tier`."""
    log: LogConfig = LogConfig()
    metrics: MetricsConfig = MetricsConfig()
    trace: TraceConfig = TraceConfig()
    health: HealthConfig = HealthConfig()
    clients: ClientConfig = ClientConfig()
    schemas: SchemaConfig = SchemaConfig()

    @property
    def settings(self) -> Settings:
        """The settings of the node's protocol machines."""
        return Settings(**{group: getattr(self, group) for group in Settings.__struct_fields__})

    @property
    def folder(self) -> Path:
        """The data folder, the default one if `data` is empty."""
        return Path(self.data).expanduser() if self.data else default_folder()

    @property
    def is_secured(self) -> bool:
        """Whether the node has keys, or is about to get them."""
        return bool(self.join) or (self.folder / "keys" / "node.key").exists()

    @property
    def trace_folder(self) -> Path:
        """The folder of the trace files, ``traces`` in the data folder if `trace.dir` is empty."""
        return Path(self.trace.dir).expanduser() if self.trace.dir else self.folder / "traces"


def load_config(
    file: Path | str | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
) -> NodeConfig:
    """Merge the three sources and check the result.

    `flags` are keys of `NodeConfig` (groups as nested mappings); None means *not given*.
    Raises ConfigError.
    """
    layers: list[tuple[str, dict[str, Any]]] = []
    if file is not None:
        layers.append((str(file), read_file(Path(file))))
    if environment is not None:
        layers.append((FROM_ENVIRONMENT, read_environment(environment)))
    if flags is not None:
        layers.append(("command line", {k: v for k, v in flags.items() if v is not None}))
    merged: dict[str, Any] = {}
    for source, layer in layers:
        layer = {
            key: {SHORT_FORMS[key]: value} if is_short(key, value) else value
            for key, value in layer.items()
        }
        typed = convert(layer, source)  # each alone, so that an error names its source
        merge_layer(merged, named_keys(typed, layer))
    config = convert(merged, " and ".join(source for source, _ in layers) or "defaults")
    if config.links.frame > MAX_BODY:
        raise ConfigError(f"links.frame: {config.links.frame} is more than {MAX_BODY} bytes")
    if config.links.protocol and not OLDEST_PROTOCOL <= config.links.protocol <= PROTOCOL:
        raise ConfigError(
            f"links.protocol: {config.links.protocol} is not spoken here; expected "
            f"{OLDEST_PROTOCOL} to {PROTOCOL}, or 0 for the newest"
        )
    check_addresses(config)
    check_overlay(config.overlay)
    check_region(config.region)
    return config


def convert(values: Mapping[str, Any], source: str) -> NodeConfig:
    """Return `values` as a NodeConfig. Raises ConfigError, which names `source`, the key path and
    the expected type."""
    strict = source != FROM_ENVIRONMENT  # where every value is text
    try:
        return msgspec.convert(values, NodeConfig, strict=strict)
    except msgspec.ValidationError as error:
        reason = plain_error(str(error))
        key, colon, what = reason.partition(": ")
        if source == FROM_ENVIRONMENT and colon:
            key = ENVIRONMENT + key.partition("[")[0].replace(".", "__").upper()
        raise ConfigError(f"{source}: {key}{colon}{what}") from None


def is_short(key: str, value: Any) -> bool:
    """Return whether a group is given as the value of its first key."""
    return key in SHORT_FORMS and isinstance(value, str)


def named_keys(typed: SettingsGroup, layer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys that `layer` names, with their converted values."""
    picked = {}
    for key, value in layer.items():
        found = getattr(typed, key)
        inner = isinstance(found, SettingsGroup) and isinstance(value, Mapping)
        picked[key] = named_keys(found, value) if inner else msgspec.to_builtins(found)
    return picked


def plain_error(message: str) -> str:
    """Return msgspec's message as ``key.path: fault``, with a guess for a misspelt key."""
    text, _, path = message.partition(" - at `")
    path = path.rstrip("`").removeprefix("$").removeprefix(".")
    for word, plain in PLAIN_WORDS.items():
        text = text.replace(word, plain)
    text = text.replace("`", "")
    unknown = text.removeprefix("Object contains unknown field ")
    group: Any = NodeConfig
    steps = path.partition("[")[0].split(".") if path else []
    if unknown == text:
        for step in steps:
            group = typing.get_type_hints(group)[step]
        choices = typing.get_args(group) if typing.get_origin(group) is typing.Literal else ()
        text += f"; expected one of {', '.join(map(str, choices))}" if choices else ""
        return f"{path}: {text[0].lower()}{text[1:]}" if path else text[0].lower() + text[1:]
    for step in steps:
        group = typing.get_type_hints(group)[step]
    near = get_close_matches(unknown, group.__struct_fields__, 1)
    key = f"{path}.{unknown}" if path else unknown
    hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(group.__struct_fields__)}"
    return f"{key}: unknown key; {hint}"


def merge_layer(into: dict[str, Any], layer: Mapping[str, Any]) -> None:
    """Merge `layer` into `into`: groups key by key; other values are replaced."""
    for key, value in layer.items():
        if isinstance(value, Mapping) and isinstance(into.get(key), dict):
            merge_layer(into[key], value)
        else:
            into[key] = dict(value) if isinstance(value, Mapping) else value


class UniqueKeyLoader(yaml.SafeLoader):
    """YAML's safe subset, where a repeated key is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Construct a mapping as SafeLoader does. Raises ConstructorError if a key is repeated or
        is not a text."""
        seen: dict[str, None] = {}
        for name, _ in node.value:
            key = name.value
            if not isinstance(key, str):
                raise yaml.constructor.ConstructorError(
                    None, None, "a key must be a text", name.start_mark
                )
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} is given twice", name.start_mark
                )
            seen[key] = None
        return super().construct_mapping(node, deep)


def read_file(path: Path) -> dict[str, Any]:
    """Return the mapping in a YAML file. Raises ConfigError with the line of a fault."""
    try:
        with path.expanduser().open("rb") as source:
            text = source.read(CONFIG_FILE_LIMIT + 1)
        if len(text) > CONFIG_FILE_LIMIT:
            raise ConfigError(f"{path}: more than {CONFIG_FILE_LIMIT} bytes")
        found = yaml.load(text, UniqueKeyLoader)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path}{yaml_fault(error)}") from None
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise ConfigError(f"{path}: expected a mapping of keys, got a {type(found).__name__}")
    for key in found:
        if not isinstance(key, str):
            raise ConfigError(f"{path}: {key!r}: a key must be a text")
    return found


def yaml_fault(error: Exception) -> str:
    """Return place and reason of a YAML error, on one line."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    where = f", line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
    return f"{where}: invalid YAML: {problem}"


def read_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the keys among the ``CANOPY_…`` variables, as nested mappings of texts and lists."""
    hints = typing.get_type_hints(NodeConfig)
    found: dict[str, Any] = {}
    for variable, text in sorted(environment.items()):
        if not variable.startswith(ENVIRONMENT):
            continue
        key, _, inner = variable.removeprefix(ENVIRONMENT).lower().partition("__")
        kind = hints.get(key)
        if kind is None:
            continue
        if is_group(kind):
            inner = inner or SHORT_FORMS.get(key, "")
            if not inner:
                raise ConfigError(f"environment: {variable}: a group of keys; use {variable}__KEY")
            found.setdefault(key, {})[inner] = text
        elif inner:
            raise ConfigError(f"environment: {variable}: {key} is not a group of keys")
        elif kind == tuple[str, ...]:
            found[key] = [part.strip() for part in text.split(",") if part.strip()]
        else:
            found[key] = text
    return found


def unknown_variables(environment: Mapping[str, str]) -> list[str]:
    """Return a message for each ``CANOPY_…`` variable that is not a key and so has no effect.

    Such a variable is not an error, since others set them too (Kubernetes for a service named
    canopy).
    """
    known = (*typing.get_type_hints(NodeConfig), *(name.lower() for name in OTHER_VARIABLES))
    found = []
    for variable in sorted(environment):
        name = variable.removeprefix(ENVIRONMENT).lower().partition("__")[0]
        if variable.startswith(ENVIRONMENT) and name not in known:
            near = get_close_matches(name, known, 1)
            hint = f"; did you mean {ENVIRONMENT}{near[0].upper()}?" if near else ""
            found.append(f"{variable} is no key of the configuration, and is ignored{hint}")
    return found


def is_group(kind: Any) -> bool:
    """Return whether a field's type is a group of settings."""
    is_class = typing.get_origin(kind) is None and isinstance(kind, type)
    return is_class and issubclass(kind, SettingsGroup)


def check_overlay(name: str) -> None:
    """Check that an overlay's name could be in a certificate, so that an overlay that gets keys
    keeps its name. Raises ConfigError."""
    if not NAME.fullmatch(name):
        raise ConfigError(f"overlay: {name!r}: expected {NAMED}")


def check_region(region: str) -> None:
    """Check that a region is names joined by ``/``. Raises ConfigError."""
    if region and not all(part.strip() == part and part for part in region.split("/")):
        raise ConfigError(
            f"region: {region!r}: expected names joined by /, such as eu or eu/de, without spaces "
            f"around a name"
        )


def check_addresses(config: NodeConfig) -> None:
    """Check the syntax of all addresses, and that listening beyond loopback is explicitly allowed.

    Raises ConfigError.
    """
    for key, addresses in (
        ("listen", (config.listen,)),
        ("advertise", (config.advertise,) if config.advertise else ()),
        ("metrics.listen", (config.metrics.listen,) if config.metrics.listen else ()),
        ("clients.listen", (config.clients.listen,) if config.clients.listen else ()),
        ("peers", config.peers),
    ):
        for address in addresses:
            try:
                _, port = split_address(address)
            except ValueError as error:
                raise ConfigError(f"{key}: {error}") from None
            if port == 0 and not key.endswith("listen"):
                raise ConfigError(f"{key}: {address!r}: port 0 cannot be dialled")
    keys_init = f"canopy keys init --data {as_argument(config.folder)}"
    if config.clients.listen and not config.is_secured:
        raise ConfigError(
            f"clients.listen: {config.clients.listen}: programs that come over TCP are served in "
            f"TLS, and this node has neither a key nor a certificate; make them with "
            f"{keys_init}, or join an overlay that has keys with --join"
        )
    host, _ = split_address(config.listen)
    if not is_loopback(host) and not config.insecure and not config.is_secured:
        raise ConfigError(
            f"listen: {config.listen} can be reached by other machines, and this node has neither "
            f"a key nor a certificate: any program could join, read and forge. For a new overlay: "
            f"{keys_init}; to join one: canopy keys invite at its "
            f"first node, and canopy node --join @FILE here. Or listen on 127.0.0.1, or add "
            f"--insecure if you trust all users of the network"
        )
    if is_every_address(host) and not config.advertise:
        raise ConfigError(
            f"listen: {config.listen} is every address of this machine; set "
            f"`advertise: HOST:PORT` to the one that other nodes can reach"
        )
