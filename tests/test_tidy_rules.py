"""Each rule of the house (test_tidy.py) finds a planted fault and passes its innocent twin."""

from __future__ import annotations

import ast

from tests.test_tidy import (
    FUNCTION_LINES,
    circles,
    foreign_names,
    impure,
    long_functions,
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
    assert not of("overlay.chord.ring.ring", "from overlay.lower_random.events import *")
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


def test_sizes() -> None:
    assert long_functions("m", ast.parse("def f():\n" + "    x = 1\n" * FUNCTION_LINES))
    assert not long_functions("m", ast.parse("def f():\n" + "    x = 1\n" * 60))


def test_foreign_names() -> None:
    assert foreign_names("a", "see https://py" + "pi.org/x")
    assert foreign_names("a", "/wor" + "k/main")
    assert not foreign_names("a", "a framework/tool, in /tmp/x")
