"""Patterns as data: are they well formed, and which value would a right completion give?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from groupwise.errors import VerifierError
from groupwise.verifiers.tools_json import canonical
from groupwise.verifiers.tools_match import RULES, Bindings, is_absent, rule_of, value_at
from groupwise.verifiers.tools_schema import part_schema


def check_pattern(pattern: Any, word: str, place: str) -> None:
    """Refuses unknown rules and rules with a body of the wrong kind.

    Raises:
        VerifierError: the message starts with `word`.
    """
    rule = rule_of(pattern)
    if not rule:
        inner: Sequence[Any] = ()
        if isinstance(pattern, Mapping):
            inner = list(pattern.values())
        elif isinstance(pattern, Sequence) and not isinstance(pattern, str):
            inner = pattern
        for item in inner:
            check_pattern(item, word, place)
        return
    body = pattern[rule]
    is_list = isinstance(body, Sequence) and not isinstance(body, str)
    if rule not in RULES:
        raise VerifierError(f"{word}: {place}: unknown rule {rule}; known: {', '.join(RULES)}")
    needs_texts = rule == "$says"
    needs_list = needs_texts or rule in ("$one_of", "$from", "$argument_of")
    if needs_list and (not is_list or not body or (needs_texts and not all(isinstance(t, str) and t for t in body))):
        raise VerifierError(f"{word}: {place}: {rule} takes a list that is not empty, got {canonical(body)[:80]}")
    if rule == "$argument_of" and len(body) < 2:
        raise VerifierError(f"{word}: {place}: $argument_of takes [step, argument], got {canonical(body)[:80]}")
    if rule == "$folded" and not isinstance(body, str):
        raise VerifierError(f"{word}: {place}: $folded takes a text")
    if rule == "$one_of":
        for option in body:
            check_pattern(option, word, place)
    if rule == "$optional":
        check_pattern(body, word, place)


def example_object(patterns: Mapping[str, Any], schema: Mapping[str, Any], bound: Bindings) -> dict[str, Any]:
    """Arguments that fit the patterns: optional ones left out where the schema lets them.

    Raises:
        VerifierError: a $from or $argument_of finds nothing.
    """
    required = schema.get("required", ())
    given = {key: p for key, p in patterns.items() if rule_of(p) != "$optional" or key in required}
    return {key: example(pattern, part_schema(schema, key), bound) for key, pattern in given.items()}


def example(pattern: Any, schema: Mapping[str, Any], bound: Bindings) -> Any:
    """A value that fits the pattern; the first of several."""
    rule = rule_of(pattern)
    body: Any = pattern[rule] if rule else None
    if rule == "$one_of":
        return example(body[0], schema, bound)
    if rule == "$optional":
        return example(body, schema, bound)
    if rule == "$says":
        return ", ".join(body)
    if rule in ("$from", "$argument_of"):
        step, *path = body
        arguments, result = bound.get(step, ({}, None))
        found = value_at(result if rule == "$from" else arguments, path)
        if is_absent(found) or step not in bound:
            raise VerifierError(f"gold_bad: {rule} {canonical(body)} finds no value in the calls before it")
        return found
    if rule:
        return body
    if isinstance(pattern, Mapping):
        return example_object(pattern, schema, bound)
    if isinstance(pattern, Sequence) and not isinstance(pattern, str):
        return [example(item, part_schema(schema, i), bound) for i, item in enumerate(pattern)]
    return pattern
