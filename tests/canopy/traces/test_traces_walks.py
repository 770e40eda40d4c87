"""How the report draws a walk."""

from __future__ import annotations

import re

from canopy.traces.analysis.report.pictures import walk_picture
from canopy.traces.analysis.walks import ExampleWalk, WalkStep

NAMES = {"a": "node 0", "b": "node 1", "c": "node 2", "h": "node 7"}


def test_a_walk_is_drawn_step_by_step_with_its_recovery() -> None:
    steps = (
        WalkStep(1, "a", "b", again=False),
        WalkStep(2, "b", "c", again=False),
        WalkStep(3, "c", "a", again=True),
        WalkStep(4, "a", "c", again=False),
    )
    page = walk_picture(ExampleWalk("mag<1", 10, steps, "h"), NAMES)
    assert page.count("<circle") == 4
    assert page.count('class="way step"') == 3
    assert page.count('class="way again"') == 1
    assert page.count('class="way named"') == 1
    assert "Blocked at node 2, it went back to node 0" in page
    assert "from where it might go on for 5 steps: 4 steps in all" in page
    assert "node 2 knew that node 7 serves the tree" in page
    assert "mag&lt;1" in page
    assert "mag<1" not in page


def test_steps_between_the_same_two_nodes_have_one_label() -> None:
    steps = (
        WalkStep(1, "a", "b", again=False),
        WalkStep(2, "b", "a", again=True),
        WalkStep(3, "a", "b", again=False),
    )
    page = walk_picture(ExampleWalk("x", 10, steps, None), NAMES)
    assert re.findall(r">([\d, ]+)</text>", page) == ["1, 3", "2"]


def test_each_recovery_halves_what_the_last_one_left() -> None:
    steps = tuple(WalkStep(hop, "ab"[hop % 2], "ba"[hop % 2], hop in (2, 4)) for hop in range(1, 6))
    page = walk_picture(ExampleWalk("x", 10, steps, None), NAMES)
    assert "for 5 steps, and for half as many each time after that (2 recoveries): 5 steps" in page


def test_a_walk_that_misses_ends_with_the_owner() -> None:
    walk = ExampleWalk("x", 10, (WalkStep(1, "a", "b", again=False),), None)
    page = walk_picture(walk, NAMES)
    assert "At node 1 it ended without a hit, and the owner was asked." in page
    assert walk_picture(None, NAMES) == ""


def test_a_host_that_the_walk_came_to_serves_the_tree_itself() -> None:
    walk = ExampleWalk("x", 10, (WalkStep(1, "a", "b", again=False),), "b")
    assert "node 1 serves the tree itself." in walk_picture(walk, NAMES)
