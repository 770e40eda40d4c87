"""The selector language: text to tree, tree to text, and a tree as a function of an event.

The language is SQL-92's search condition in the subset of JMS selectors, with three truth values
(docs/design/selectors.md). This folder knows nothing of indexes: `matching.predicate` puts its
parts together, and `matching.constraint` and `matching.normal_form` work on its trees. What other
rooms take from here directly is names and quoting (`keywords`, `unparse`) and `SelectorError`.

Read in this order: `expression` (the tree, and the error that a selector is refused with),
`keywords` (reserved words, names), `parser` (text to tree: the grammar, and messages for what it
refuses), `shapes` (texts that differ in their constants only), `unparse` (tree to canonical text),
`like` (LIKE patterns), `evaluate` (tree to a function of its own), `truth` (one function for all
trees), `explain` (the verdict on every part of a tree).

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

The rules where SQL leaves a choice: an absent attribute and None are NULL; a comparison between
types (boolean, number, string) is unknown, also under NOT; each type is ordered in itself (FALSE
before TRUE, strings by code point, integers exactly); LIKE is case-sensitive and has no escape
character unless one is named; integer division truncates toward zero; division by zero, arithmetic
on anything but numbers, and a float that overflows are NULL; integer arithmetic is exact; an
integer literal beyond 64 bits stands for the nearest float. Values that `check_value` refuses count
as NULL or have no promised result, so callers refuse such events before.
"""
