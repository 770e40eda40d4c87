"""Values, selectors, predicates, and the index: what matches what. Knows nothing of nodes.

Read in the order of the data flow: ``values`` (the ordered space of C6), ``expression`` (the
tree), ``words``, ``grammar``, ``parser``, ``complaints`` (text to tree), ``unparse`` (and back),
``like`` and ``evaluate`` (a tree as a function), ``explain``, ``constraint`` and ``conjunction``
(what is registered, C8 and C9), ``normal`` (a tree as an OR of ANDs), ``predicate`` (all of it
together), ``build`` (without text), ``index`` (the door to the two engines), ``plain`` and
``ranges`` (the one that starts at once), ``engine`` (the fast one, with a manual of its own),
``warming`` (making that one ready), ``groups`` and ``alike`` (whose the matches of many events
are).

A selector is SQL-92's search condition with three truth values; only *true* delivers:

>>> from matching import Index, attr, compile_selector
>>> strong = compile_selector("mag >= 4.5 AND (place LIKE '%Japan' OR tsunami = 1)")
>>> strong.matches({"mag": 5, "place": "off the coast of Japan", "tsunami": 0})
True
>>> strong.evaluate({"mag": 5, "place": "Fiji"}) is None  # tsunami is absent: unknown
True
>>> strong.attributes
('mag', 'place', 'tsunami')

What it asks for, AND by AND, with the attributes that it can be registered under (best first):

>>> [conjunction.predicate().text for conjunction in strong.conjunctions]
["mag >= 4.5 AND place LIKE '%Japan'", 'mag >= 4.5 AND tsunami = 1']
>>> strong.conjunctions[1].pivots()[0]
('tsunami', Interval(lo=(1, 1, 0), hi=(1, 1, 1)))

The same without text; what is built has text, and compiles to an equal predicate:

>>> same = (attr("mag") >= 4.5) & (attr("place").like("%Japan") | (attr("tsunami") == 1))
>>> same == strong == compile_selector(same.text)
True

Many at once:

>>> index = Index()
>>> index.add("strong", strong)
>>> index.add("near", attr("distance").between(0, 50) & ~attr("place").is_null())
>>> index.match({"mag": 6.1, "tsunami": 1, "distance": 12.5, "place": "Fiji"})
['strong', 'near']

Errors say where and what:

>>> from matching import SelectorError
>>> try:
...     compile_selector("mag 3")
... except SelectorError as error:
...     print(error.caret())
mag 3
    ^
expected a comparison after the attribute 'mag', not the number 3

Why something matched or did not:

>>> print("\\n".join(strong.explain({"mag": 5, "place": "Fiji"}).lines()))
unknown: mag >= 4.5 AND (place LIKE '%Japan' OR tsunami = 1)
  true: mag >= 4.5  (mag is 5)
  unknown: place LIKE '%Japan' OR tsunami = 1
    false: place LIKE '%Japan'  (place is 'Fiji')
    unknown: tsunami = 1  (attribute tsunami is absent)

The tree as JSON (`Predicate.tree`), from which others build their own evaluators::

    ["attr", name]              as a condition: true only if the value is TRUE
    ["lit", value]
    ["cmp", op, left, right]    op is one of = <> < <= > >=
    ["and", a, b, …]   ["or", a, b, …]   ["not", a]
    ["between", x, low, high]   x >= low AND x <= high
    ["in", x, [value, …]]       x = value OR …
    ["like", x, pattern, escape or null]
    ["isnull", x]
    ["arith", op, left, right]  op is one of + - * /   ["neg", x]

The rules, where SQL leaves a choice: an absent attribute and None are NULL; a comparison between
types (boolean, number, string) is unknown, also under NOT; each type is ordered in itself (FALSE
before TRUE, strings by code point, integers exactly); LIKE is case-sensitive and has no escape
unless one is named; integer division cuts toward zero; division by zero, arithmetic on what is no
number, and a float that overflows are NULL; integer arithmetic is exact; an integer literal beyond
64 bits stands for the nearest float. Values that `check_value` refuses count as NULL or have no
promised result: refuse them at the door.
"""

from matching.build import Operand, attr
from matching.conjunction import Conjunction
from matching.constraint import Constraint
from matching.errors import SelectorError
from matching.explain import Explanation
from matching.expression import Expression
from matching.groups import Groups
from matching.index import Index
from matching.predicate import Predicate, compile_selector
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
)
from matching.warming import warm, warm_is_slow, warm_wanted

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
    "Groups",
    "Index",
    "Interval",
    "Operand",
    "Predicate",
    "SelectorError",
    "Value",
    "attr",
    "check_value",
    "compile_selector",
    "place",
    "warm",
    "warm_is_slow",
    "warm_wanted",
]
