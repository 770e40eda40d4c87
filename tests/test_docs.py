"""The documentation against the code: links lead somewhere, and reference tables are complete."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from bench.site import pages
from canopy.cli.process.config import in_order
from canopy.traces.schema import FIELDS, KINDS, MEANINGS
from canopy.wire.config import NodeConfig
from canopy.wire.process import config_keys
from canopy.wire.process.reload import HOT, keys_of
from canopy.wire.transport.outlet import Counters
from overlay import info
from overlay.client import Explained, Status
from overlay.client_types import COMMANDS
from streams.access import reasons

ROOT = Path(__file__).parent.parent
COUNTERS = ROOT / "canopy/wire/admin/counters.md"
BESIDE = [ROOT / path for path in pages.BESIDE.values()]
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md"), *BESIDE])
FOLDERS = ("overlay", "matching", "streams", "canopy", "bench", "harness")
LINK = re.compile(r"\]\(([^)\s]+)\)")


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.replace(" ", "-") for heading in plain}


def broken(page: Path) -> Iterator[str]:
    """Links of a page to files or headings that are not there."""
    for link in LINK.findall(page.read_text(encoding="utf-8")):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            yield link


def module_ends() -> set[str]:
    """Each end of the path of each module, with a slash before it."""
    folders = (*FOLDERS, "examples", "tests")
    paths = [p.relative_to(ROOT) for folder in folders for p in (ROOT / folder).rglob("*.py")]
    paths += [p.relative_to(ROOT) for p in ROOT.glob("*.py")]
    return {"/" + "/".join(p.parts[n:]) for p in paths for n in range(len(p.parts))}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(page: Path) -> None:
    assert not list(broken(page))


def test_the_code_cites_pages_and_modules_that_exist() -> None:
    """Modules by the end of their path; bench/dataplane speaks of files of another project."""
    there = module_ends()
    missing = []
    for path in (each for folder in FOLDERS for each in (ROOT / folder).rglob("*.py")):
        text, name = path.read_text(encoding="utf-8"), path.relative_to(ROOT).as_posix()
        cited = re.findall(r"docs/[\w/-]+\.md", text)
        missing += [f"{name}: {page}" for page in cited if not (ROOT / page).exists()]
        if not name.startswith("bench/dataplane/"):
            ends = {end.lstrip("/") for end in re.findall(r"[\w/]*\w\.py\b", text)}
            missing += [f"{name}: {end}" for end in ends if f"/{end}" not in there]
    assert not missing


def test_the_site_has_every_page_once() -> None:
    """What `make docs` shows beside its pages, of which some are made then."""
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    shown = re.findall(r": (\S+\.md)$", text, re.M)
    docs = [path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")]
    root = [path.name for path in ROOT.glob("*.md") if path.name != "README.md"]
    made = [f"reference/{name}.md" for name in ("python", *pages.PAGES)]
    assert sorted(shown) == sorted([*docs, *root, *made])


def test_modules_and_files_that_the_pages_name_exist() -> None:
    """Modules by their name in commands, files by their path or the end of it."""
    there = module_ends()
    missing = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        modules = re.findall(r"python -m ((?:bench|canopy)[\w.]*\w)", text)
        named = re.findall(rf"`((?:{'|'.join(FOLDERS)}|tests)/[\w/.-]*)`", text)
        ends = set(re.findall(r"`([\w/-]+\.py)[:`]", text))
        missing += [f"{page.name}: {path}" for path in named if not (ROOT / path).exists()]
        missing += [f"{page.name}: {each}" for each in modules if not find_spec(each)]
        missing += [f"{page.name}: {end}" for end in ends if f"/{end}" not in there]
    assert not missing


def test_classes_and_methods_that_write_or_decide_exist() -> None:
    text = (ROOT / "docs/design/where-decided.md").read_text(encoding="utf-8")
    decided = text.partition("## Who may write what")[2]
    named = re.findall(r"`([A-Z]\w+)(?:\.(\w+))?`", decided)
    assert len(named) > 40
    of_interest = re.compile(rf"^class ({'|'.join({c for c, _ in named})})\b", re.MULTILINE)
    defined: dict[str, set[str]] = {}
    for path in (ROOT / "node.py", *(p for f in FOLDERS for p in (ROOT / f).rglob("*.py"))):
        source = path.read_text(encoding="utf-8")
        if of_interest.search(source) is None:
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ClassDef):
                names = defined.setdefault(node.name, set())
                methods = ast.FunctionDef | ast.AsyncFunctionDef
                names.update(each.name for each in node.body if isinstance(each, methods))
    assert [f"{c}.{m}" for c, m in named if c not in defined or (m and m not in defined[c])] == []


def test_what_answers_where_something_is_decided_exists() -> None:
    text = (ROOT / "docs/design/where-decided.md").read_text(encoding="utf-8")
    answers = re.findall(r"^\| \d+ \| .+\? \| `([\w/]+\.py):([\w.]+)` \|$", text, re.M)
    assert len(answers) == 22
    missing = []
    for path, name in answers:
        names: set[str] = set()
        for node in ast.parse((ROOT / path).read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                names.add(node.name)
            if isinstance(node, ast.ClassDef):
                names |= {f"{node.name}.{getattr(each, 'name', '')}" for each in node.body}
            if isinstance(node, ast.AnnAssign):
                names.add(ast.unparse(node.target))
        missing += [f"{path}:{name}"] if name not in names else []
    assert missing == []


def test_every_key_of_the_configuration_has_a_meaning_and_its_default_on_the_page() -> None:
    """In the order of `canopy config check`."""
    every = [key for group in config_keys.groups() for key in group.keys]
    names = [key.name for key in every]
    assert sorted(names) == sorted(keys_of(NodeConfig()))
    assert [key.name for key in every if not key.meaning.endswith(".")] == []
    assert {key.name for key in every if key.effect == "now"} == HOT
    shown = in_order(msgspec.to_builtins(NodeConfig()))
    assert list(dict.fromkeys(name.partition(".")[0] for name in names)) == list(shown)
    text = pages.settings()
    assert "\n| `lease` | `60` | restart | Seconds after which a registration " in text
    assert "\n| `peers` | `[]` | now | " in text
    assert "\n| `queue` | `67,108,864` | restart | " in text
    links = {path.partition("#")[0] for path in LINK.findall(text)}
    assert {link for link in links if not (ROOT / "docs/reference" / link).exists()} == set()


def test_every_reason_of_a_stream_has_a_meaning() -> None:
    text = pages.reasons()
    told = {value for name, value in vars(reasons).items() if name.isupper()}
    missing = [code for code in told if isinstance(code, str) and f"| `{code}` | " not in text]
    assert sorted(missing) == ["busy", "disk-full", "elsewhere", "moved"], "repeated by nodes"
    assert "\n| `too-large` | A batch is larger than a chunk may be (896 KiB). " in text


def counted(call: ast.Call) -> Iterator[str]:
    """The names of counters in a call of `count` (or of what notes an incident)."""
    if not call.args:
        return
    what = call.args[0]
    for value in (what.body, what.orelse) if isinstance(what, ast.IfExp) else (what,):
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            yield value.value


def counters() -> set[str]:
    """Every counter of a node, as the code names it."""
    found = {f"wire_{name}" for name in Counters.__slots__}
    machines = [*(ROOT / "overlay").rglob("*.py"), *(ROOT / "streams").rglob("*.py")]
    for path in [ROOT / "node.py", *machines]:
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)):
                continue
            if call.func.attr in ("count", "_count"):
                found.update(counted(call))
            elif call.func.attr == "_note" and path.name == "incidents.py":
                found.update(f"incidents_{what.replace(' ', '_')}" for what in counted(call))
    process = (ROOT / "canopy/wire/process/node_process.py").read_text(encoding="utf-8")
    return found | set(re.findall(r'counters\["(\w+)"\] = ', process))


def test_the_counters_page_has_every_counter_and_no_other() -> None:
    text = COUNTERS.read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.*?`) \|", text, re.M)
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert len(named) == len(set(named))
    assert set(named) == counters()


def test_every_command_has_help_on_its_page_and_every_trace_field_a_meaning() -> None:
    text = pages.commands()
    for command in (
        "node",
        "stream add",
        "keys seal new",
        "sync run",
        "trace check",
        "policy push",
    ):
        assert f"\n## canopy {command}\n\n```text\nUsage: canopy {command} " in text
    assert {name for fields in KINDS.values() for name in fields} <= set(FIELDS)
    rows = pages.traces().splitlines()
    assert all(f"| `{name}` | {kind} | {text} |" in rows for name, (kind, text) in MEANINGS.items())
    assert all(text for _, text in MEANINGS.values())


PRINTED = {
    "status": (Status, info.ClientInfo),
    "peers": (info.PeerInfo,),
    "ring": (info.ClusterInfo,),
    "subs": (info.SubscriptionInfo,),
    "tx ls": (info.TransactionInfo,),
    "why": (Explained, info.Reason, info.ExplanationLine),
}


@pytest.mark.parametrize("command", PRINTED)
def test_the_json_of_a_command_has_its_fields_on_the_page(command: str) -> None:
    text = (ROOT / "docs/reference/commands.md").read_text("utf-8").partition("\n## JSON\n")[2]
    named, made = text.partition("\n- `top`")[0], pages.messages()
    assert f"`{command}`" in named
    for kind in PRINTED[command]:
        (said,) = re.findall(rf"^\*\*`{kind.__name__}`\*\* \((.*?)\):", made, re.M)
        assert set(kind.__struct_fields__) == set(re.findall(r"`(\w+)`", said))


def test_every_command_of_the_wire_says_what_answers_it() -> None:
    text = pages.messages()
    for command in get_args(COMMANDS):
        (line,) = re.findall(rf"^\*\*`{command.__name__}`\*\* .*$", text, re.M)
        assert "nswered" in line
    assert "\n**`Hello`** (`protocol`, `overlay`, " in text
    assert "\n**`StreamRows`** (`shard`, " in text


def test_the_overview_names_every_mechanism() -> None:
    text = (ROOT / "docs/design/overview.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([CPVMT]\d+) \|", text, re.M)
    counts = {"C": 12, "P": 8, "V": 9, "M": 6, "T": 8}
    assert rows == [f"{letter}{n + 1}" for letter, most in counts.items() for n in range(most)]
    named = re.findall(r"^\| ([CPVMT]\d+) \|.*\| `(test_\w+)` \|$", text, re.M)
    assert len(named) == len(rows), "each names a test that fails with a planted fault of it"
    (run,) = json.loads((ROOT / "bench/results/mutations.json").read_text(encoding="utf-8"))
    found = {(row["stands_for"], row["found_by"].partition("[")[0]) for row in run["rows"]}
    assert [row for row in named if row not in found] == []
    tests = "\n".join(
        file.read_text(encoding="utf-8") for file in (ROOT / "tests").rglob("test_*.py")
    )
    assert [name for _, name in named if f"def {name}(" not in tests] == []
