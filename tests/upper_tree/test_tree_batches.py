"""Batches fit into messages, whether each item is weighed or only the largest is known."""

from __future__ import annotations

from overlay.client import Draft
from overlay.upper_tree.batches import BATCH_BYTES, BATCH_ITEMS, cut_evenly
from overlay.upper_tree.publisher.admission import UniformBatch
from tests.upper_tree.publisher.test_tree_publisher import Rig


def test_events_none_of_which_is_large_are_cut_without_weighing_each() -> None:
    items = list(range(2 * BATCH_ITEMS + 1))
    assert [len(cut) for cut in cut_evenly(items, 1)] == [BATCH_ITEMS, BATCH_ITEMS, 1]
    assert [len(cut) for cut in cut_evenly(items[:5], BATCH_BYTES // 2)] == [2, 2, 1]
    assert list(cut_evenly(items[:2], 2 * BATCH_BYTES)) == [(0,), (1,)]


def test_a_batch_that_looks_alike_is_cut_by_its_largest_event() -> None:
    rig = Rig()
    rig.know("x", "h")
    drafts = [Draft({"x": number}) for number in range(4)]
    rig.publisher.publish(drafts, UniformBatch(("x",), BATCH_BYTES // 2))
    assert [len(sequences) for _, _, sequences in rig.visits()] == [2, 2]
