"""The answer's object against the gold's, field by field, and how many fields are right.

Fields are counted at the leaves (money and a quantity are one leaf each; every list item counts):

    gold has a value, the answer the same one      1 right
    gold has a value, the answer another one       1 too many and 1 missed
    gold has a value, the answer none              1 missed
    gold has none, the answer a value              1 too many: an invented value costs as much as a wrong one
    a key that is not declared                     1 too many for each value in it, at least 1
    both none                                      nothing: nulls earn no credit

    precision = right / (right + too many)     recall = right / (right + missed)
    F1 = 2 right / (2 right + too many + missed), 0 where nothing is right
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any

from groupwise.verifiers.extraction_align import align_bag, align_in_order
from groupwise.verifiers.extraction_fields import FieldRule, Malformed, is_leaf, is_none, leaf_key

# In the order in which a verdict names them: the whole answer's form before its values.
PROBLEMS = (
    "unknown_field",
    "missing_field",
    "wrong_form",
    "invented_value",
    "extra_item",
    "missing_value",
    "missing_item",
    "wrong_value",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is not right: Finding(path="total", problem="wrong_value", expected=Decimal("9.5"), found=10)."""

    path: str
    """The declared path: lines[].price for the price of any line."""
    problem: str
    """One of PROBLEMS."""
    expected: Any
    """The gold's value, or a text that says which form is expected."""
    found: Any


@dataclass(slots=True)
class Comparison:
    """What compare_objects adds up."""

    right: int = 0
    too_many: int = 0
    missed: int = 0
    findings: list[Finding] = field(default_factory=list)

    @property
    def precision(self) -> float:
        """right / (right + too many); 0 where nothing is right."""
        return self.right / max(1, self.right + self.too_many)

    @property
    def recall(self) -> float:
        """right / (right + missed); 0 where nothing is right."""
        return self.right / max(1, self.right + self.missed)

    @property
    def f1(self) -> float:
        """2 right / (2 right + too many + missed); 0 where nothing is right."""
        return 2 * self.right / max(1, 2 * self.right + self.too_many + self.missed)


def compare_objects(rule: FieldRule, gold: dict[str, Any], found: dict[str, Any]) -> Comparison:
    """Both objects under the rule. The answer is right exactly if there are no findings."""
    comparison = Comparison()
    _compare_object(rule, "", gold, found, comparison)
    return comparison


def num_values(value: object) -> int:
    """Leaves of any JSON value that are not null."""
    if isinstance(value, dict):
        return sum(num_values(inner) for inner in value.values())
    if isinstance(value, list):
        return sum(num_values(inner) for inner in value)
    return int(value is not None)


def _compare(rule: FieldRule, path: str, gold: Any, found: Any, into: Comparison) -> None:
    """Two values that are both there, in the sense of is_none."""
    if is_leaf(rule):
        _compare_leaf(rule, path, gold, found, into)
    elif rule.kind == "list" and isinstance(found, list):
        _compare_list(rule, path, gold, found, into)
    elif rule.kind == "object" and isinstance(found, dict):
        _compare_object(rule, path, gold, found, into)
    else:
        into.too_many += max(1, num_values(found))
        into.missed += _num_leaves(rule, gold)
        _add(into, path, "wrong_form", "a list" if rule.kind == "list" else "an object", found)


def _compare_leaf(rule: FieldRule, path: str, gold: Any, found: Any, into: Comparison) -> None:
    key = leaf_key(rule, found)
    if not isinstance(key, Malformed) and key == leaf_key(rule, gold):
        into.right += 1
        return
    into.too_many += 1
    into.missed += 1
    if isinstance(key, Malformed):
        _add(into, path, "wrong_form", key.expected, found)
    else:
        _add(into, path, "wrong_value", gold, found)


def _compare_object(rule: FieldRule, path: str, gold: dict[str, Any], found: dict[str, Any], into: Comparison) -> None:
    for name, inner in rule.fields.items():
        inner_path = f"{path}.{name}".lstrip(".")
        gold_value, value = gold.get(name), found.get(name)
        gold_none, none = is_none(inner, gold_value), is_none(inner, value)
        if name not in found and inner.presence != "optional":
            into.missed += 0 if gold_none else _num_leaves(inner, gold_value)
            _add(into, inner_path, "missing_field", gold_value, None)
        elif value is None and inner.presence == "required":
            into.missed += 0 if gold_none else _num_leaves(inner, gold_value)
            _add(into, inner_path, "wrong_form", "a value, not null", None)
        elif gold_none and not none:
            into.too_many += max(1, num_values(value))
            _add(into, inner_path, "invented_value", None, value)
        elif none and not gold_none:
            into.missed += _num_leaves(inner, gold_value)
            _add(into, inner_path, "missing_value", gold_value, value)
        elif not none:
            _compare(inner, inner_path, gold_value, value, into)
    for name, value in found.items():
        if name not in rule.fields:
            into.too_many += max(1, num_values(value))
            _add(into, f"{path}.{name[:60]}".lstrip("."), "unknown_field", "no such field", value)


def _compare_list(rule: FieldRule, path: str, gold: list[Any], found: list[Any], into: Comparison) -> None:
    item = _item(rule)
    # A gold is checked against itself before it is known to be well-formed: then each item stands for itself.
    if rule.ordered or gold is found:
        pairs = align_in_order(range(len(gold)), range(len(found)))
    else:
        # An item in a wrong form equals no other, so its place is its key.
        gold_keys = [_key(item, value) for value in gold]
        found_keys = [
            ("malformed", index) if isinstance(key, Malformed) else ("item", key)
            for index, key in enumerate(_key(item, value) for value in found)
        ]
        gold_parts = [Counter(_parts(item, "", value)) for value in gold]
        found_parts = [Counter(_parts(item, "", value)) for value in found]
        pairs = align_bag(
            [("item", key) for key in gold_keys],
            found_keys,
            lambda g, f: (gold_parts[g] & found_parts[f]).total(),
        )
    for gold_index, found_index in pairs:
        inner_path = f"{path}[]"
        if found_index is None:
            assert gold_index is not None, "one side of a pair is there"
            into.missed += _num_leaves(item, gold[gold_index])
            _add(into, inner_path, "missing_item", gold[gold_index], None)
        elif gold_index is None:
            into.too_many += max(1, num_values(found[found_index]))
            _add(into, inner_path, "extra_item", None, found[found_index])
        else:
            _compare(item, inner_path, gold[gold_index], found[found_index], into)


def _key(rule: FieldRule, value: Any) -> Hashable | Malformed:
    """Equal for two values exactly if comparing them finds nothing; Malformed for one that can equal nothing."""
    if is_leaf(rule):
        return leaf_key(rule, value)
    if rule.kind == "list":
        if not isinstance(value, list):
            return Malformed("a list")
        keys = [_key(_item(rule), inner) for inner in value]
        if any(isinstance(key, Malformed) for key in keys):
            return Malformed("well-formed items")
        return tuple(keys) if rule.ordered else frozenset(Counter(keys).items())
    if not isinstance(value, dict) or any(name not in rule.fields for name in value):
        return Malformed("an object of the declared fields")
    parts: list[Hashable] = []
    for name, inner in rule.fields.items():
        if is_none(inner, value.get(name)):
            if inner.presence == "required" or (inner.presence == "nullable" and name not in value):
                return Malformed(f"the field {name}")
            parts.append(None)
            continue
        key = _key(inner, value[name])
        if isinstance(key, Malformed):
            return key
        parts.append((key,))
    return tuple(parts)


def _parts(rule: FieldRule, path: str, value: Any) -> Iterator[tuple[str, Hashable]]:
    """The well-formed leaves of a value with their paths: what two items have in common is counted over these."""
    if is_leaf(rule):
        key = leaf_key(rule, value)
        if not isinstance(key, Malformed):
            yield path, key
    elif rule.kind == "list" and isinstance(value, list):
        for inner in value:
            yield from _parts(_item(rule), f"{path}[]", inner)
    elif rule.kind == "object" and isinstance(value, dict):
        for name, field_rule in rule.fields.items():
            if name in value:
                yield from _parts(field_rule, f"{path}.{name}", value[name])


def _num_leaves(rule: FieldRule, gold: Any) -> int:
    """Values of a gold; money or a quantity is one."""
    if rule.kind == "list" and isinstance(gold, list):
        return sum(_num_leaves(_item(rule), value) for value in gold)
    if rule.kind == "object" and isinstance(gold, dict):
        return sum(_num_leaves(inner, gold.get(name)) for name, inner in rule.fields.items())
    return int(gold is not None)


def _item(rule: FieldRule) -> FieldRule:
    assert rule.item is not None, "a list has a rule for its items"
    return rule.item


def _add(into: Comparison, path: str, problem: str, expected: Any, found: Any) -> None:
    into.findings.append(Finding(path=path, problem=problem, expected=expected, found=found))
