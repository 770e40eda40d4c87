"""Completion: what is proposed where, and that it never breaks the text."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from canopy.tui.model.completion import check, complete, tokens
from matching import compile_selector
from matching.selector.unparse import quote_name, quote_value

NAMES = ("magnitude", "place", "host.cpu", "odd name", "magType")
SEEN = {"place": ("Peru", "it's"), "odd name": (True,), "magnitude": (5, 2.5)}


def proposed(text: str) -> tuple[str, ...]:
    return complete(text, NAMES, lambda name: SEEN.get(name, ())).candidates


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("", ("magnitude", "place", "host.cpu", '"odd name"', "magType", "NOT")),
        ("mag", ("magnitude", "magType")),
        ("MAGN", ("magnitude",)),
        ("cpu", ("host.cpu",)),
        ("host.", ("host.cpu",)),
        ('"od', ('"odd name"',)),
        ("magnitude ", ("=", "<>", "<")),
        ("magnitude B", ("BETWEEN",)),
        ("magnitude is", ("IS NULL", "IS NOT NULL")),
        ("magnitude IS ", ("NULL", "NOT NULL")),
        ("magnitude NOT ", ("IN (", "LIKE '", "BETWEEN")),
        ("magnitude > ", ("5", "2.5", "magnitude")),
        ("place = ", ("'Peru'", "'it''s'")),
        ("place = 'P", ("'Peru'",)),
        ("place IN (", ("'Peru'", "'it''s'")),
        ("place IN ('Peru', ", ("'Peru'", "'it''s'")),
        ('"odd name" = ', ("TRUE", "magnitude")),
        ("magnitude > 5 ", ("AND", "OR")),
        ("magnitude > 5 a", ("AND",)),
        ("magnitude BETWEEN 3 ", ("AND",)),
        ("magnitude > 5 AND (", ("magnitude", "place")),
        ("NOT ", ("magnitude", "place")),
        ("magnitude + ", ("magnitude", "place")),
    ],
)
def test_what_comes_next(text: str, first: tuple[str, ...]) -> None:
    assert proposed(text)[: len(first)] == first


@pytest.mark.parametrize("text", ["place = 'Peru'", "magnitude > 5", "magnitude", '"odd name"'])
def test_nothing_is_proposed_for_what_is_finished(text: str) -> None:
    assert proposed(text) == ()


def test_a_candidate_replaces_only_what_was_begun() -> None:
    text = "magnitude > 5 AND pl"
    assert complete(text, NAMES, lambda name: ()).start == text.index("pl")


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="am'\" >=().,x5\\\n\u00e9", max_size=30))
def test_any_text_is_read_whole(text: str) -> None:
    end = 0
    for token in tokens(text):
        assert not text[end : token.start].strip(), "only space is left out"
        assert text[token.start :].startswith(token.text)
        end = token.start + len(token.text)
    assert not text[end:].strip()
    assert 0 <= complete(text, NAMES, lambda name: ()).start <= len(text)


@settings(deadline=None)
@given(st.text(min_size=1, max_size=12).filter(lambda name: not name.startswith("$")))
def test_a_written_name_is_read_back(name: str) -> None:
    checked = check(f"{quote_name(name)} = 1")
    if checked.good:
        assert checked.attributes == (name,)
    else:  # what the language refuses (a lone surrogate) is refused here as well
        assert not name.isprintable()


@settings(deadline=None)
@given(
    st.one_of(
        st.booleans(),
        st.integers(-(2**63), 2**63 - 1),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(max_size=20),
    )
)
def test_a_written_value_equals_itself(value: bool | int | float | str) -> None:
    assert compile_selector(f"x = {quote_value(value)}").matches({"x": value})


@pytest.mark.parametrize(
    "text", ["", "   ", "a >", "a = 'x", "(" * 500, "a = 1 a", "\x00", "\ud800"]
)
def test_checking_never_raises(text: str) -> None:
    checked = check(text)
    assert not checked.good
    assert checked.message
    assert -1 <= checked.position <= len(text)
