"""Each rule of the house (test_tidy.py) finds a planted fault and passes its innocent twin."""

from __future__ import annotations

import ast

from bench.lab import structure
from tests.test_tidy import (
    circles,
    foreign_names,
    grown,
    impure,
    set_loops,
    unordered_consumers_excused,
    wrong_arrows,
)


def test_arrows() -> None:
    def of(module: str, text: str) -> list[str]:
        return wrong_arrows(module, False, ast.parse(text))

    assert of("overlay.links.session", "from overlay.chord import messages")
    assert of("overlay.links.session", "from ..chord import messages")
    assert of("matching.index", "import overlay.machine")
    assert of("canopy.wire.driver", "from canopy.sim.world import world")
    assert of("canopy.sim.world.world", "import trio")
    assert of("canopy.tui.app", "from canopy.wire.driver import Driver")
    assert of("canopy.client.session", "from canopy.wire.control.server import ControlServer")
    assert of("canopy.client.asynchronous", "import trio")
    assert not of("canopy.trio", "import trio")
    assert of("canopy.traces.analysis.read", "from matching import compile_selector")
    assert not of("overlay.chord.ring.ring", "from overlay.lower_random.messages import *")
    assert not of("overlay.links.session", "from .messages import Batch")
    assert not of("canopy.wire.driver", "import trio, node")
    assert not of("node", "if __name__ == '__main__':\n    import canopy.cli.main")


def test_import_cycles() -> None:
    assert circles({"a": ["b"], "b": ["c"], "c": ["a"]}) == [["a", "b", "c"]]
    assert not circles({"a": ["b", "c"], "b": ["c"], "c": []})


def test_machines() -> None:
    def of(text: str) -> list[str]:
        return impure("overlay.links.session", ast.parse(text))

    for guilty in ("import time", "import random", "from random import choice", "open('x')"):
        assert of(guilty), guilty
    assert of("async def f():\n    pass")
    assert not of("from random import Random\nimport math")


def test_sets() -> None:
    def of(body: str) -> list[str]:
        tree = ast.parse(f"def f(self, x: set[str], y: list[str]):\n    {body}")
        return unordered_consumers_excused(set_loops("m", tree), tree)

    assert of("for a in x: pass")
    assert of("for a in list(x): pass")
    assert of("return [a for a in {1, 2}]")
    assert of("self.z = set()\n    for a in self.z: pass")
    assert not of("for a in sorted(x): pass")
    assert not of("for a in y: pass")
    assert not of("return any(a for a in x)")


def test_foreign_names() -> None:
    assert foreign_names("a", "see https://py" + "pi.org/x")
    assert foreign_names("a", "/wor" + "k/main")
    assert not foreign_names("a", "a framework/tool, in /tmp/x")


def module(path: str, text: str) -> structure.Module:
    return structure.Module(path, text, ast.parse(text))


def test_what_hurts_may_not_grow() -> None:
    known = {"fields": {"A": 20, "B": 30}}
    assert grown({"fields": {"A": 20, "B": 29}}, known) == []
    assert grown({"fields": {"A": 21}}, known) == ["fields: A (21; known are 20)"]
    assert grown({"twins": {"A": 2}}, known) == ["twins: A (2; known are 0)"]


def test_wide_classes_and_constructors() -> None:
    names = [f"a{n}" for n in range(structure.PARAMETERS_MOST + 1)]
    wide = f"class A:\n    def __init__(self, {', '.join(names)}):\n        self.x = 1\n"
    many = "".join(f"        self.x{n} = {n}\n" for n in range(structure.FIELDS_MOST))
    full = f"class B:\n    y: int\n    def __init__(self):\n        self.x0 = 0\n{many}"
    planted = [module("streams/m.py", wide + full)]
    assert structure.wide_constructors(planted) == {"A": 11}
    assert structure.wide_classes(planted) == {"B": 17}
    innocent = wide.replace(", a10", "") + full.replace(
        "    y: int\n", "    y: ClassVar[int] = 0\n"
    )
    twin = [module("streams/m.py", innocent)]
    assert not structure.wide_constructors(twin)
    assert not structure.wide_classes(twin)


def test_names_of_two_public_classes() -> None:
    planted = [
        module("streams/a.py", "class A: pass\nclass _B: pass"),
        module("overlay/b.py", "class A: pass\nclass _B: pass\nclass C: pass"),
    ]
    assert structure.twins(planted) == {"A": 2}


def test_numbers_of_pacing_outside_of_pacing() -> None:
    uses = "from streams.access.locator import StreamLocator\nfrom streams.programs.near import X\n"
    wait = '"""Seconds without an answer after which it is asked again."""\n'
    planted = [
        module("streams/programs/reading.py", f"{uses}WAIT: Final = 2.0\n{wait}MOST = 3\n"),
        module("streams/programs/near.py", 'TRIES: Final = 3\n"""How many times."""\n'),
        module("streams/access/pacing.py", f"SILENT: Final = 60 * 2\n{wait}"),
        module("streams/log/far.py", f"WAIT: Final = 2.0\n{wait}"),
    ]
    assert structure.retries(planted) == {"reading.WAIT": 1, "near.TRIES": 1}
    assert list(structure.pacing(planted)) == [m.name for m in planted]


def test_manuals() -> None:
    def of(manual: str) -> list[str]:
        inside = [module(f"streams/x/{name}.py", "") for name in ("one", "two")]
        return list(structure.manual_faults([module("streams/x/__init__.py", manual), *inside]))

    head = "What it is.\n\n*Read in this order*:\n\n"
    assert of(f'"""{head}* `one`: a. `two`: b.\n"""') == []
    assert of(f'"""{head}* `one`: a.\n"""') == ["streams/x: two is not named"]
    assert of(f'"""{head}* `one`, `two`: a. `three`: c.\n"""') == ["streams/x: there is no three"]
    assert of("") == [], "no manual"


def test_other_counts() -> None:
    text = "class A(Protocol):\n    def mistaken(self): pass\nf(*(a, b), *c)\n[*(a, b)]\n"
    handler = "class B:\n    def on_x(self, event: ShardCommitted | ShardLed): pass\n"
    planted = [module("streams/asking.py", text + handler)]
    assert structure.locators(planted) == ["streams.asking.A"]
    assert structure.handlers(planted, "ShardCommitted") == ["streams.asking.B.on_x"]
    assert structure.packs(planted) == 1
    long = module("streams/long.py", "def f():\n" + "    x = 1\n" * structure.LONG_FILE)
    assert structure.long_files([long]) == {"streams.long": structure.LONG_FILE + 1}
    assert structure.long_functions([*planted, long]) == {"streams.long.f": 701}
    assert structure.full_folders([long] * 21) == {"streams": 21}
    assert structure.gerunds(planted) == structure.small(planted) == ["streams.asking"]
    simulated = "from canopy.sim.world.world import World\n"
    worlds = [
        module("tests/a.py", "class AWorld: pass\n"),
        module("tests/b.py", f"{simulated}class BWorld: pass\n"),
    ]
    assert structure.worlds(worlds) == {"tests.a": 1}
