"""Agents that do not look at the task. What they earn is what the verifier gives away.

An agent that always gives the same gold earns that gold's share of the tasks by right: `fair_share` says how much.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from groupwise.audit.attack import prompt_text
from groupwise.types import Task

REFUSAL = "I am sorry, but I cannot help with that."
MAX_LISTED_GOLDS = 50
MAX_LISTED_CHARS = 8_000


@dataclass(frozen=True, slots=True, kw_only=True)
class NullAgent:
    """NullAgent(name="empty", answer=lambda task: "", fair_share=0.0)."""

    name: str
    answer: Callable[[Task], str]
    fair_share: float = 0.0
    """Share of tasks for which its answer is a right one."""


def null_agents(
    golds: Mapping[str, str], keys: Mapping[str, str] | None = None, constants: Sequence[str] = ()
) -> list[NullAgent]:
    """The agents for a set of tasks.

    Args:
        golds: a right completion for each task id.
        keys: what makes two golds the same answer (a label), by task id; None = their text.
        constants: answers that are well-formed for the kind of verifier, whatever the task.
    """
    agents = [
        NullAgent(name="empty", answer=lambda task: ""),
        NullAgent(name="space", answer=lambda task: " \n"),
        NullAgent(name="echo", answer=prompt_text),
        NullAgent(name="refuse", answer=lambda task: REFUSAL),
        *(_constant(f"constant {text!r}", text) for text in constants),
    ]
    if not golds:
        return agents
    keys = {task_id: text.strip() for task_id, text in golds.items()} if keys is None else keys
    counts = Counter(keys[task_id] for task_id in golds)
    (frequent, number), *_ = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    example = min((golds[i] for i in golds if keys[i] == frequent), key=lambda text: (len(text), text))
    agents.append(_constant("most_frequent_gold", example, number / len(golds)))
    texts = sorted(set(golds.values()), key=lambda text: (len(text), text))
    if len(texts) > 1:
        agents.append(_constant("form_without_content", _frame(texts)))
        listed = "\n".join(texts[:MAX_LISTED_GOLDS])[:MAX_LISTED_CHARS]
        agents.append(_constant("all_golds_at_once", listed))
    return agents


def _constant(name: str, text: str, fair_share: float = 0.0) -> NullAgent:
    return NullAgent(name=name, answer=lambda task: text, fair_share=fair_share)


def _frame(texts: Sequence[str]) -> str:
    """What all golds begin and end with: the form that is asked for, and nothing in it."""
    start = _common_start(texts)
    end = _common_start([text[len(start) :][::-1] for text in texts])[::-1]
    return start + end


def _common_start(texts: Sequence[str]) -> str:
    first, last = min(texts), max(texts)  # every other text lies between these two
    length = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    return first[:length]
