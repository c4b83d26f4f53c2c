"""Patterns, phrases, bags of calls, required steps."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groupwise.errors import VerifierError
from groupwise.verifiers.tools_match import SearchTooLarge, match_bags, matches, missing_phrases
from groupwise.verifiers.tools_schema import ToolSet
from groupwise.verifiers.tools_steps import DoneCall, find_steps, read_steps

SET = {"type": "array", "uniqueItems": True}


@pytest.mark.parametrize(
    ("pattern", "value", "schema"),
    [
        (140, 140.0, {}),
        ({"a": {"$optional": 1}}, {}, {}),
        ({"a": {"$optional": 1}}, {"a": 2}, {"properties": {"a": {"default": 2}}}),
        ({"$one_of": [1, "x"]}, "x", {}),
        (["a", "b"], ["b", "a"], SET),
        ({"$folded": "Main St"}, "main  st", {}),
        ({"$any": "x"}, None, {}),
        ({"$says": ["140.00"]}, "We sent 140.00 on May 2.", {}),
        ({"$from": ["s", "ids", 1]}, "B", {}),
        ({"$argument_of": ["s", "q"]}, 3.0, {}),
        (None, None, {}),
    ],
)
def test_a_value_that_fits(pattern, value, schema):
    assert matches(pattern, value, schema, {"s": ({"q": 3}, {"ids": ["A", "B"]})})


@pytest.mark.parametrize(
    ("pattern", "value", "schema"),
    [
        (1, True, {}),
        (True, 1, {}),
        (0, False, {}),
        ("1", 1, {}),
        (1, "1", {}),
        ("Paris", "paris", {}),
        ("1.5", "15", {}),
        ({"a": 1}, {}, {}),
        ({"a": 1}, {"a": 1, "b": 2}, {}),
        ({"a": {"$optional": 1}}, {"a": 2}, {}),
        ({"a": {"$optional": 1}}, {"a": None}, {}),
        (["a", "b"], ["b", "a"], {}),
        (["a", "a", "b"], ["a", "b", "b"], SET),
        (["a"], ["a", "a"], SET),
        ({"$one_of": [1, 2]}, 3, {}),
        ({"$folded": "a b"}, "ab", {}),
        ({"$says": ["140.00"]}, 140.0, {}),
        ({"$from": ["s", "ids", 2]}, None, {}),
        ({"$from": ["t", "x"]}, None, {}),
        ({"$argument_of": ["s", "q"]}, "3", {}),
        (None, "", {}),
    ],
)
def test_a_value_that_does_not_fit(pattern, value, schema):
    assert not matches(pattern, value, schema, {"s": ({"q": 3}, {"ids": ["A", "B"]})})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("140.00 refunded", True),
        ("You get 140.00.", True),
        ("EUR 140.00 for W7, on 2 May", True),
        ("1140.00 refunded", False),
        ("140.001", False),
        ("140.00, 14.00, 1400.00", False),
        ("-140.00", False),
        ("1,140.00", False),
        ("140", False),
        ("", False),
    ],
)
def test_a_number_is_said_between_borders_and_alone_of_its_kind(text, said):
    assert (missing_phrases(text, ["140.00"]) == []) is said


def test_a_number_counts_by_value_and_words_by_borders():
    assert missing_phrases("It is 1,234.50 in all", ["1234.50"]) == []
    assert missing_phrases("It is NOT\neligible.", ["not eligible"]) == []
    assert missing_phrases("cannot eligible", ["not eligible"]) == ["not eligible"]


@settings(max_examples=60, derandomize=True, deadline=None)
@given(st.lists(st.lists(st.booleans(), min_size=4, max_size=4), min_size=1, max_size=4))
def test_the_largest_assignment_is_found(table):
    partners = match_bags(len(table), 4, lambda w, g: table[w][g])
    found = [p for p in partners if p is not None]
    assert len(set(found)) == len(found)
    assert all(table[w][p] for w, p in enumerate(partners) if p is not None)
    best = max(sum(table[w][g] for w, g in enumerate(order)) for order in itertools.permutations(range(4), len(table)))
    assert len(found) == best


TOOLS = ToolSet.compile([{"name": name, "parameters": {}} for name in "abc"], lambda pattern, text: True)


def calls(text):
    """ "a1 b2!": calls of a and b with n = 1 and 2, the second failed; a call returns its n."""
    made = []
    for word in text.split():
        n = int(word[1])
        made.append(DoneCall(name=word[0], arguments={"n": n}, ok=not word.endswith("!"), result={"n": n}))
    return made


CHAIN = [
    {"tool": "a"},
    {"tool": "b", "arguments": {"n": {"$from": ["a", "n"]}}},
    {"tool": "c", "arguments": {"n": {"$argument_of": ["b", "n"]}}, "after": ["a"]},
]


@pytest.mark.parametrize(
    ("made", "ordered", "unordered"),
    [
        ("a1 b1 c1", True, True),
        ("a1 c1 b1", True, True),  # b and c are independent of each other's place
        ("a1 a2 b2 c2", True, True),  # the first a is not the one that b refers to
        ("b1 a1 c1", False, True),
        ("c1 a1 b1", False, True),
        ("a1 b2 c2", False, False),
        ("a1 b1 c2", False, False),
        ("a1! b1 c1", False, False),
        ("a1 b1", False, False),
        ("", False, False),
    ],
)
def test_required_steps_are_a_partial_order_with_bindings(made, ordered, unordered):
    steps = read_steps(CHAIN, TOOLS)
    assert bool(find_steps(steps, calls(made), TOOLS)) is ordered
    assert bool(find_steps(steps, calls(made), TOOLS, ordered=False)) is unordered


def test_one_call_does_not_serve_two_steps():
    steps = read_steps([{"id": "first", "tool": "a"}, {"id": "second", "tool": "a"}], TOOLS)
    assert not find_steps(steps, calls("a1"), TOOLS)
    assert find_steps(steps, calls("a1 a1"), TOOLS)


def test_a_step_may_ask_for_a_result():
    steps = read_steps([{"tool": "a", "result": {"n": {"$one_of": [2, 3]}}}], TOOLS)
    assert find_steps(steps, calls("a1 a3"), TOOLS) == {"a": 1}
    assert not find_steps(steps, calls("a1"), TOOLS)


def test_too_many_ways_are_given_up():
    column = [{"id": f"s{i}", "tool": "a"} for i in range(20)] + [{"tool": "b"}]
    with pytest.raises(SearchTooLarge):
        find_steps(read_steps(column, TOOLS), calls(" ".join(["a1"] * 40)), TOOLS)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ([{"tool": "z"}], "no tool"),
        ([{"tool": "a"}, {"tool": "a"}], "two steps"),
        ([{"tool": "a", "after": ["b"]}], "no step's id"),
        ([{"tool": "a", "after": ["b"]}, {"tool": "b", "after": ["a"]}], "wait for each other"),
        ([{"tool": "a", "args": {}}], "no others"),
        ([{"tool": "a", "arguments": {"n": {"$oneof": [1]}}}], "unknown rule"),
        ([{"tool": "a", "arguments": {"n": {"$one_of": []}}}], "not empty"),
    ],
)
def test_steps_that_cannot_be_used_are_refused(column, message):
    with pytest.raises(VerifierError, match=message):
        read_steps(column, TOOLS)
