"""Content-based matching: values, selectors, predicates, and indexes that find what matches.

What it promises: a predicate is a pure function of an event's attributes; every index returns
exactly the keys whose predicate is true, whichever engine holds them; nothing here knows of nodes,
reads a clock or does IO (but for `engine.kernels`, which loads compiled code as an import would).

Called by the overlay: a subscriber compiles selectors and registers their conjunctions, a host
matches events with a `GroupedIndex`, the summaries of trees use the value space; by `sim` for its
checks, and by the TUI for completion. docs/reference/selectors.md describes the language, and
docs/design/matching.md the indexes.

Read in this order: `values` (the ordered space of an attribute's values, C6); `selector` (the
language, with a manual of its own); `constraint`, `conjunction` (what is registered in an
attribute's tree, C8 and C9), `normal_form` (a tree as an OR of conjunctions), `predicate` (all of
it together, for one event or a batch) and `builder` (predicates without text); `index` (many
predicates, in one of two engines), `plain_engine` (the one that needs no preparation), `engine`
(the fast one, with a manual of its own) and `warmup` (preparing it); `grouped_index` (which groups
want an event) and `columnar` (batches of events of one shape).

A selector is a search condition of SQL-92 with three truth values; only *true* delivers:

>>> from matching import Index, attr, compile_selector
>>> strong = compile_selector("mag >= 4.5 AND (place LIKE '%Japan' OR tsunami = 1)")
>>> strong.matches({"mag": 5, "place": "off the coast of Japan", "tsunami": 0})
True
>>> strong.evaluate({"mag": 5, "place": "Fiji"}) is None  # tsunami is absent: unknown
True
>>> strong.attributes
('mag', 'place', 'tsunami')

Its conjunctions, each with the attributes that it can be registered under, best first:

>>> [conjunction.text for conjunction in strong.conjunctions]
["mag >= 4.5 AND place LIKE '%Japan'", 'mag >= 4.5 AND tsunami = 1']
>>> strong.conjunctions[1].pivots()[0]
('tsunami', Interval(lo=(1, 1, 0), hi=(1, 1, 1)))

The same built without text; it has a canonical text, which compiles to an equal predicate:

>>> same = (attr("mag") >= 4.5) & (attr("place").like("%Japan") | (attr("tsunami") == 1))
>>> same == strong == compile_selector(same.text)
True

An index of many predicates:

>>> index = Index()
>>> index.add("strong", strong)
>>> index.add("near", attr("distance").between(0, 50) & ~attr("place").is_null())
>>> index.match({"mag": 6.1, "tsunami": 1, "distance": 12.5, "place": "Fiji"})
['strong', 'near']

Errors have a position and a message:

>>> from matching import SelectorError
>>> try:
...     compile_selector("mag 3")
... except SelectorError as error:
...     print(error.caret())
mag 3
    ^
expected a comparison after the attribute 'mag', not the number 3

Why an event matched or did not:

>>> print("\\n".join(strong.explain({"mag": 5, "place": "Fiji"}).lines()))
unknown: mag >= 4.5 AND (place LIKE '%Japan' OR tsunami = 1)
  true: mag >= 4.5  (mag is 5)
  unknown: place LIKE '%Japan' OR tsunami = 1
    false: place LIKE '%Japan'  (place is 'Fiji')
    unknown: tsunami = 1  (attribute tsunami is absent)
"""

from matching.builder import Operand, attr
from matching.conjunction import Conjunction
from matching.constraint import Constraint
from matching.grouped_index import GroupedIndex, Grouping, Shares
from matching.index import Index
from matching.predicate import Predicate, compile_in_steps, compile_selector, same_selector
from matching.selector.explain import Explanation
from matching.selector.expression import Expression, SelectorError
from matching.values import (
    BOTTOM,
    EVERYTHING,
    NUMBERS,
    STRINGS,
    TOP,
    Attributes,
    Cut,
    Interval,
    Value,
    check_value,
    place,
    places,
)
from matching.warmup import prepare_parser, warm, warm_is_slow, warm_wanted

__all__ = [
    "BOTTOM",
    "EVERYTHING",
    "NUMBERS",
    "STRINGS",
    "TOP",
    "Attributes",
    "Conjunction",
    "Constraint",
    "Cut",
    "Explanation",
    "Expression",
    "GroupedIndex",
    "Grouping",
    "Index",
    "Interval",
    "Operand",
    "Predicate",
    "SelectorError",
    "Shares",
    "Value",
    "attr",
    "check_value",
    "compile_in_steps",
    "compile_selector",
    "place",
    "places",
    "prepare_parser",
    "same_selector",
    "warm",
    "warm_is_slow",
    "warm_wanted",
]
