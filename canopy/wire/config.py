"""What a user may set: a YAML file, ``CANOPY_…`` environment variables, and flags.

Flags override the environment, which overrides the file (docs/reference/configuration.md). All
three have the same keys and go through one typed conversion, so that an unknown key, a wrong type
or a value out of bounds is refused with its source, its place and what is expected there.

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

from canopy.wire.addresses import is_loopback, split_address
from canopy.wire.constants import CLIENTS, CONFIG_FILE_LIMIT, PARKED, RESUME
from canopy.wire.control.credit_window import QUEUE
from canopy.wire.folder import default_folder
from overlay.links.messages import MAX_BODY, OLDEST_PROTOCOL, PROTOCOL
from overlay.machine import Region, Tier
from overlay.settings import Bytes, Count, Seconds, Settings, SettingsGroup
from overlay.upper_tree.publisher.schemas import Otherwise

ENVIRONMENT: Final = "CANOPY_"
FROM_ENVIRONMENT: Final = "environment"
OTHER_VARIABLES: Final = ("CONNECT", "DEBUG", "FAULT", "SEAL", "WAIT")
"""Variables of the commands and of the tests (bench/mutations) that are no keys."""

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
"""msgspec's words for types, and what is shown to the user instead."""

SHORT_FORMS: Final = {"log": "level"}
"""Groups that may be given as one value, and the key that it is the value of: ``log: debug``."""

Name = Annotated[str, Meta(max_length=200)]


class ConfigError(Exception):
    """The configuration is invalid; the message says where (source and key) and why."""


class TraceConfig(SettingsGroup, frozen=True):
    """Whether and where trace records are written (`canopy.traces.writer`)."""

    dir: str = ""  # "": the folder `traces` in the data folder
    sample: Annotated[float, Meta(ge=0, le=1)] = 1.0  # the share of events that is traced at most
    rate: Annotated[float, Meta(ge=0)] = 100.0  # own events that are traced per second; of more
    # a share is, the same one at all nodes; 0: however many. A traced event costs as much
    # as three that are not, or eleven where it matches a hundred subscriptions
    # (docs/lab/performance.md)
    enabled: bool = True
    stream: Annotated[str, Meta(max_length=200)] = ""  # that records are sent to; "": none
    redact: bool = False  # write no values of attributes and no selectors


class LogConfig(SettingsGroup, frozen=True):
    """The lines on standard error (canopy/wire/log.py)."""

    level: typing.Literal["debug", "info", "warning", "error"] = "info"
    format: typing.Literal["logfmt", "json"] = "logfmt"


class MetricsConfig(SettingsGroup, frozen=True):
    """The addresses that serve monitoring of the node: /metrics, /livez, /readyz
    (canopy/wire/admin)."""

    listen: str = ""  # HOST:PORT; port 0: a free one; "": nowhere


class HealthConfig(SettingsGroup, frozen=True):
    """Health records, and the health file (docs/design/health.md)."""

    period: Seconds = 10.0  # between two measurements of its health, which traces record. Twelve in
    # the two minutes that the analysis looks at together; guess
    file: str = ""  # that `canopy trace health` writes; "": none
    max_age: Seconds = 600.0  # a file whose newest record is older changes nothing: ten rounds of
    # `canopy trace health --follow`; guess


class ClientConfig(SettingsGroup, frozen=True):
    """Programs at the control socket (canopy/wire/control/credit_window.py)."""

    queue: Bytes = QUEUE  # bytes of deliveries that may wait for one client's credit; more are
    # dropped and counted, and the client is notified
    programs: Count = CLIENTS  # that may be connected; one more is refused and hears why
    resume: Annotated[float, Meta(ge=0, le=86_400)] = RESUME  # seconds for which a program's
    # session is kept when its connection is lost; 0: not at all
    parked: Annotated[int, Meta(ge=0, le=1_000_000)] = PARKED  # sessions that are kept at a time
    listen: str = ""  # HOST:PORT for programs on other machines, which show tokens (`canopy
    # access`); port 0: a free one; "": nowhere. Needs the node's keys


class SchemaConfig(SettingsGroup, frozen=True):
    """JSON Schemas of what the node's programs publish and append (canopy/schemas.py)."""

    dir: str = ""  # the folder with a file TYPE.json for events of a type; "": none
    otherwise: Otherwise = "refuse"  # what becomes of others: refuse, park (published as an event
    # of the type schema.parked, with the event as its payload) or count


class NodeConfig(Settings, frozen=True):
    """A node's configuration; the groups of `Settings` are fields of it."""

    listen: str = DEFAULT_LISTEN  # HOST:PORT; port 0: a free one
    advertise: str = ""  # HOST:PORT that others can reach, if it differs from `listen`
    peers: tuple[str, ...] = ()  # addresses to join at
    data: str = ""  # "": canopy.wire.folder.default_folder()
    name: Name = ""
    overlay: Name = "canopy"  # two overlays never link
    insecure: bool = False  # listen beyond loopback without key or certificate
    join: str = ""  # a token: get a certificate with it, unless there is one
    drain_timeout: Seconds = 10.0  # leave after so long even if not drained; guess, to be measured
    # by the time that a primary with full logs takes to hand over its arc
    directory: bool = True  # the Kademlia directory; without keys on loopback only
    mdns: bool = False  # find nodes of the local network by multicast DNS; needs keys
    seed: int | None = None  # of the node's generator; None: from the system
    region: Region = ""  # where it is, a path: eu/de; delivery by region (overlay/regions.py)
    tier: Tier = 0  # a higher one: it takes in what comes for its region, before others there
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
    """Whether a group is given as the value of its first key."""
    return key in SHORT_FORMS and isinstance(value, str)


def named_keys(typed: SettingsGroup, layer: Mapping[str, Any]) -> dict[str, Any]:
    """The keys that `layer` names, with their converted values."""
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
    """Lay `layer` over `into`; groups are merged key by key, everything else is replaced."""
    for key, value in layer.items():
        if isinstance(value, Mapping) and isinstance(into.get(key), dict):
            merge_layer(into[key], value)
        else:
            into[key] = dict(value) if isinstance(value, Mapping) else value


class UniqueKeyLoader(yaml.SafeLoader):
    """YAML's safe subset, where a repeated key is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Construct a mapping as SafeLoader does. Raises ConstructorError if a key is repeated or
        is no text."""
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
    """The mapping in a YAML file. Raises ConfigError with the line of a fault."""
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
    """Place and reason of a YAML error, as one line."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    where = f", line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
    return f"{where}: invalid YAML: {problem}"


def read_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    """The keys among the ``CANOPY_…`` variables, as nested mappings of texts and lists."""
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
    """Return a message for each ``CANOPY_…`` variable that is no key and so has no effect.

    Such a variable is no error, since others set them, too (Kubernetes for a service named canopy).
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
    """Whether a field's type is a group of settings."""
    is_class = typing.get_origin(kind) is None and isinstance(kind, type)
    return is_class and issubclass(kind, SettingsGroup)


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
    if config.clients.listen and not config.is_secured:
        raise ConfigError(
            f"clients.listen: {config.clients.listen}: programs that come over TCP are served in "
            f"TLS, and this node has neither a key nor a certificate; make them with canopy keys "
            f"init --data {config.folder}, or join an overlay that has keys with --join"
        )
    host, _ = split_address(config.listen)
    if not is_loopback(host) and not config.insecure and not config.is_secured:
        raise ConfigError(
            f"listen: {config.listen} can be reached by other machines, and this node has neither "
            f"a key nor a certificate: any program could join, read and forge. For a new overlay: "
            f"canopy keys init --data {config.folder}; to join one: canopy keys invite at its "
            f"first node, and canopy node --join @FILE here. Or listen on 127.0.0.1, or add "
            f"--insecure if you trust all users of the network"
        )
    if host in ("0.0.0.0", "::") and not config.advertise:
        raise ConfigError(
            f"listen: {config.listen} is every address of this machine; set "
            f"`advertise: HOST:PORT` to the one that other nodes can reach"
        )
