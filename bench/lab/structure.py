"""What the house is made of: findings in the syntax trees of its modules, by name.

`bench.lab.house` counts them; tests/test_tidy.py holds them against the list of those that are
known (tests/debts.json).
"""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

FIELDS_MOST: Final = 16
"""Fields of a class; nobody lists the states of one with more. Guess."""

PARAMETERS_MOST: Final = 10
"""Parameters of a constructor, `self` not counted; who calls it cannot tell more apart. Guess."""

SMALL_FILE: Final = 60
"""Lines below which a module is a fragment of its only user, most often."""

PACING: Final = re.compile(
    r"(?:Nanos|S)econds(?:,| (?:between|after|for which|without|before|in which|since|from))"
    r"|(?:How many times|Times|Looks|Marks|Rounds|Attempts|Tries)\b"
    r"|(?:Answers|Leaders)\b[^.]*\bafter which\b"
)
"""How the docstring of a number begins that says how long to wait, how often to repeat, or when to
give up."""

LONG_FILE: Final = 700
LONG_FUNCTION: Final = 70
FULL_FOLDER: Final = 20
"""Lines of a file and a function, and modules of a folder, above which one asks whether it is still
one concept. Advice: one of 800 lines that is one concept stays whole."""

CONVERSATION: Final = ("streams.access",)
"""Who imports one of these speaks with the leaders of shards."""

VOCABULARY: Final = "streams.access.reasons"
"""… but for this, which all have who answer, too."""


class Module(NamedTuple):
    """A module of the house."""

    path: str
    """From the root of the repository: ``streams/log/chunk.py``."""
    text: str
    tree: ast.Module

    @property
    def name(self) -> str:
        """As it is imported: ``streams.log.chunk``."""
        return self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    @property
    def stem(self) -> str:
        """The file's name without its suffix."""
        return Path(self.path).stem

    @property
    def lines(self) -> int:
        """Lines of the file."""
        return self.text.count("\n")

    def classes(self) -> Iterator[ast.ClassDef]:
        """The classes at the top of the module."""
        return (node for node in self.tree.body if isinstance(node, ast.ClassDef))


def read(root: Path, *places: str) -> list[Module]:
    """The modules at these places, each a file or a folder with all that is below it."""
    found = []
    for place in places:
        path = root / place
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            if "__pycache__" not in file.parts and file.exists():
                text = file.read_text(encoding="utf-8")
                found.append(Module(str(file.relative_to(root)), text, ast.parse(text)))
    return found


# --- classes ---


def bases(node: ast.ClassDef) -> list[str]:
    """The names of a class's bases, without their modules and parameters."""
    return [re.split(r"[\[(]", ast.unparse(base))[0].rpartition(".")[2] for base in node.bases]


def fields(node: ast.ClassDef) -> set[str]:
    """What an instance has: attributes that methods of the class assign to `self`, and annotated
    names of its body that are no class variables."""
    found = {
        inner.attr
        for inner in ast.walk(node)
        if isinstance(inner, ast.Attribute)
        and isinstance(inner.ctx, ast.Store)
        and isinstance(inner.value, ast.Name)
        and inner.value.id == "self"
    }
    for statement in node.body:
        if (
            isinstance(statement, ast.AnnAssign)
            and isinstance(statement.target, ast.Name)
            and "ClassVar" not in ast.unparse(statement.annotation)
        ):
            found.add(statement.target.id)
    return found


def wide_classes(modules: Iterable[Module]) -> dict[str, int]:
    """Classes with more than `FIELDS_MOST` fields and how many they have. Messages, settings and
    other records count only where they have behaviour: a constructor of their own."""
    found: dict[str, int] = {}
    for module in modules:
        for node in module.classes():
            count = len(fields(node))
            if count > FIELDS_MOST and constructor(node) is not None:
                found[node.name] = max(count, found.get(node.name, 0))
    return found


def constructor(node: ast.ClassDef) -> ast.FunctionDef | None:
    """The class's own `__init__`."""
    methods = (each for each in node.body if isinstance(each, ast.FunctionDef))
    return next((method for method in methods if method.name == "__init__"), None)


def wide_constructors(modules: Iterable[Module]) -> dict[str, int]:
    """Classes whose constructor has more than `PARAMETERS_MOST` parameters, and how many."""
    found: dict[str, int] = {}
    for module in modules:
        for node in module.classes():
            method = constructor(node)
            if method is not None:
                given = method.args
                count = len([*given.posonlyargs, *given.args, *given.kwonlyargs]) - 1
                if count > PARAMETERS_MOST:
                    found[node.name] = max(count, found.get(node.name, 0))
    return found


def twins(modules: Iterable[Module]) -> dict[str, int]:
    """Names that several public classes have, with how many."""
    places: defaultdict[str, int] = defaultdict(int)
    for module in modules:
        for node in module.classes():
            if not node.name.startswith("_"):
                places[node.name] += 1
    return {name: count for name, count in places.items() if count > 1}


def locators(modules: Iterable[Module]) -> list[str]:
    """Protocols by which something finds the leader of a shard: with a method `mistaken`, or that
    have *Locator* or *Leaders* in their name."""
    found = []
    for module in modules:
        for node in module.classes():
            methods = {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
            is_named = "Locator" in node.name or "Leaders" in node.name
            if "Protocol" in bases(node) and (is_named or "mistaken" in methods):
                found.append(f"{module.name}.{node.name}")
    return found


def handlers(modules: Iterable[Module], event: str) -> list[str]:
    """Methods `on_…` that handle a message or event of this type."""
    found = []
    for module in modules:
        for node in module.classes():
            for method in node.body:
                if isinstance(method, ast.FunctionDef) and method.name.startswith("on_"):
                    what = method.args.args[-1].annotation
                    if what is not None and event in ast.unparse(what).split(" | "):
                        found.append(f"{module.name}.{node.name}.{method.name}")
    return found


# --- numbers ---


def is_number(node: ast.expr) -> bool:
    """Whether an expression is a number, or some arithmetic with numbers."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, int | float) and not isinstance(node.value, bool)
    if isinstance(node, ast.BinOp):
        return is_number(node.left) and is_number(node.right)
    return isinstance(node, ast.UnaryOp) and is_number(node.operand)


def numbers(module: Module) -> Iterator[tuple[str, str]]:
    """The numbers that a module names at its top, each with its docstring ("": it has none)."""
    body = module.tree.body
    for statement, after in zip(body, [*body[1:], None], strict=True):
        if not isinstance(statement, ast.AnnAssign | ast.Assign) or statement.value is None:
            continue
        target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
        if isinstance(target, ast.Name) and is_number(statement.value):
            text = after.value if isinstance(after, ast.Expr) else None
            says = str(text.value) if isinstance(text, ast.Constant) else ""
            yield target.id, " ".join(says.split())


def pacing(modules: Iterable[Module]) -> dict[str, list[str]]:
    """By module, the numbers that say how long it waits, how often it repeats, when it gives up:
    those whose docstring begins as `PACING` has it, and all in modules that are named *pacing*."""
    found = {}
    for module in modules:
        names = [
            name
            for name, says in numbers(module)
            if module.stem == "pacing" or PACING.match(says) is not None
        ]
        if names:
            found[module.name] = names
    return found


def imported(module: Module) -> set[str]:
    """The modules (or names in them) that a module imports."""
    found = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def below(name: str, place: str) -> bool:
    """Whether a module is `place`, or in it."""
    return name == place or name.startswith(f"{place}.")


def speakers(modules: Iterable[Module]) -> list[Module]:
    """The modules that speak with leaders of shards: who imports the locator or what is in
    `streams/access` (which belong to them), with what these import of their own folder. Who builds
    the machines is none."""
    all_ = {module.name: module for module in modules if module.name != "streams.machines"}
    speaking = [
        name
        for name, module in all_.items()
        if any(
            below(one, base) and not below(one, VOCABULARY)
            for one in (name, *imported(module))
            for base in CONVERSATION
        )
    ]
    near = {
        other
        for name in speaking
        for other in imported(all_[name]) & all_.keys()
        if other.rpartition(".")[0] == name.rpartition(".")[0]
    }
    return [all_[name] for name in sorted({*speaking, *near})]


def retries(modules: Iterable[Module]) -> dict[str, int]:
    """Numbers of pacing in conversations with leaders that stand outside of a module named
    *pacing*, as ``module.NAME`` with the module's own name only, so that they may be moved."""
    return {
        f"{name.rpartition('.')[2]}.{number}": 1
        for name, names in pacing(speakers(modules)).items()
        if not name.endswith(".pacing")
        for number in names
    }


# --- files ---


def gerunds(modules: Iterable[Module]) -> list[str]:
    """Modules that are named by an activity."""
    named = [module for module in modules if module.stem.endswith("ing")]
    return [module.name for module in named if module.stem != "ring"]


def small(modules: Iterable[Module]) -> list[str]:
    """Modules, manuals not counted, with fewer than `SMALL_FILE` lines."""
    found = (module for module in modules if module.stem not in ("__init__", "__main__"))
    return [module.name for module in found if module.lines < SMALL_FILE]


def long_files(modules: Iterable[Module]) -> dict[str, int]:
    """Modules with more than `LONG_FILE` lines, and how many."""
    return {module.name: module.lines for module in modules if module.lines > LONG_FILE}


def long_functions(modules: Iterable[Module]) -> dict[str, int]:
    """Functions with more than `LONG_FUNCTION` lines, and how many."""
    found = {}
    for module in modules:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > LONG_FUNCTION:
                    found[f"{module.name}.{node.name}"] = lines
    return found


def full_folders(modules: Iterable[Module]) -> dict[str, int]:
    """Folders with more than `FULL_FOLDER` modules, the manual not counted, and how many."""
    folders = Counter(
        module.path.rpartition("/")[0] for module in modules if module.stem != "__init__"
    )
    return {folder: count for folder, count in folders.items() if count > FULL_FOLDER}


def packs(modules: Iterable[Module]) -> int:
    """Arguments that are packed only to fit more of them into a line: ``f(*(a, b), *(c, d))``."""
    return sum(
        isinstance(argument, ast.Starred) and isinstance(argument.value, ast.Tuple)
        for module in modules
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call)
        for argument in node.args
    )


NAMED: Final = re.compile(r"`([a-z_][a-z0-9_]*)/?(?:\.[A-Za-z_.]+)?`")
LISTED: Final = re.compile(
    r"(?:^\* |[.;] |\(s\)|order\*: )((?:`[a-z][a-z0-9_]*/?`(?:, | and )?)+)", re.M
)


def manual_faults(modules: Iterable[Module]) -> dict[str, int]:
    """``folder: module`` for each module that the manual of its folder (the docstring of
    `__init__.py`) does not name, and for each that a manual lists and that is not there. Folders
    without modules or without a manual are left out."""
    folders: defaultdict[str, set[str]] = defaultdict(set)
    manuals: dict[str, str] = {}
    for module in modules:
        folder, _, _ = module.path.rpartition("/")
        if module.stem == "__init__":
            manuals[folder] = ast.get_docstring(module.tree) or ""
            above, _, name = folder.rpartition("/")
            folders[above].add(name)
        elif folder:
            folders[folder].add(module.stem)
    found: dict[str, int] = {}
    for folder, text in manuals.items():
        if text:
            named = set(NAMED.findall(text))
            inside = {name for name in folders[folder] if f"{folder}/{name}" not in manuals}
            listed = {name for run in LISTED.findall(text) for name in NAMED.findall(run)}
            found |= {f"{folder}: {name} is not named": 1 for name in sorted(inside - named)}
            gone = listed - folders[folder]
            found |= {f"{folder}: there is no {name}": 1 for name in sorted(gone)}
    return found


# --- tests ---


def worlds(modules: Iterable[Module]) -> dict[str, int]:
    """Modules of tests that make a world of their own, and their lines: with a class whose name
    ends in *World*, and without the simulator's."""
    found = {}
    for module in modules:
        has_own = any(node.name.endswith("World") for node in module.classes())
        if has_own and not any(name.startswith("canopy.sim.world.") for name in imported(module)):
            found[module.name] = module.lines
    return found


def debts(modules: list[Module]) -> Mapping[str, Mapping[str, int]]:
    """What hurts, by rule: its name, and how much it is."""
    streams = [module for module in modules if module.path.startswith("streams/")]
    return {
        "fields": wide_classes(modules),
        "parameters": wide_constructors(modules),
        "retries": retries(streams),
        "twins": twins(modules),
        "manuals": manual_faults(modules),
    }
