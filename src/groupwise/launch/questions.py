"""What each task of a recipe asks, apart from what its prompt shares with others: this is searched for duplicates.

A prompt is mostly an instruction and a schema. Compared as a whole, any two questions on one database look alike; so
the question is what the recipe's template fills in, or the last turn, and everything else is its context.
"""

from __future__ import annotations

import json
import string
from collections.abc import Callable, Iterable, Sequence

from groupwise.config import ComposeVerifierSection, Recipe, VerifierSection
from groupwise.config.verifier import PATHS
from groupwise.curation import Question
from groupwise.errors import VerifierError
from groupwise.rollout.collect import judge_safely
from groupwise.types import Task
from groupwise.verifiers import TaskVerifier

SCHEMA = "schema"
"""The column that data.schema_from adds: context, never part of a question."""


def questions_of(recipe: Recipe, tasks: Iterable[Task], verifier: TaskVerifier) -> list[Question]:
    """The question, gold and context of each task."""
    template = recipe.data.prompt_template
    asked = None if template is None else [name for name in _placeholders(template) if name != SCHEMA]
    about = [SCHEMA, *_path_columns(recipe.verifier), *_placeholders(recipe.data.schema_from or "")]
    return [_question(task, asked, about, verifier) for task in tasks]


def same_answer(verifier: TaskVerifier, tasks: Sequence[Task]) -> Callable[[Question, Question], bool]:
    """Whether the golds of two questions solve each other's task: two ways to write one answer are no conflict.

    Of two tasks with one id, in different sets, the later in `tasks` is asked.
    """
    by_id = {task.id: task for task in tasks}

    def agrees(first: Question, second: Question) -> bool:
        return all(
            answer is not None and judge_safely(verifier, by_id[asked.id], answer).outcome is True
            for asked, answer in ((first, second.gold), (second, first.gold))
        )

    return agrees


def _question(task: Task, asked: Sequence[str] | None, about: Sequence[str], verifier: TaskVerifier) -> Question:
    turns = [{"role": "user", "content": task.prompt}] if isinstance(task.prompt, str) else list(task.prompt)
    text = turns[-1]["content"]
    if asked:
        text = "\n".join(str(task.columns.get(name)) for name in asked)
    try:
        gold = verifier.gold(task)
    except VerifierError:
        gold = None
    context = [[dict(turn) for turn in turns[:-1]], {name: task.columns.get(name) for name in about}]
    return Question(id=task.id, text=text, gold=gold, context=json.dumps(context, sort_keys=True, default=str))


def _placeholders(template: str) -> list[str]:
    return list(dict.fromkeys(name for _, name, _, _ in string.Formatter().parse(template) if name))


def _path_columns(section: VerifierSection) -> list[str]:
    """Columns that choose a task's files, such as db_id in "db/{db_id}.sqlite"."""
    if isinstance(section, ComposeVerifierSection):
        return [name for part in section.parts for name in _path_columns(part.verifier)]
    names: list[str] = []
    for field in PATHS.get(section.kind, ()):
        value = getattr(section, field)
        for path in [value] if isinstance(value, str) else value or ():
            names += _placeholders(path)
    return names
