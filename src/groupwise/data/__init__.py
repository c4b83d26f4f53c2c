"""Data: files and hub data sets to tasks and pairs, these to token ids. Read sources, tasks, splits, pairs, render."""

from .options import DataOptions
from .pairs import PreferencePair, load_pairs, refuse_leaked_pairs, render_pair
from .render import Tokenizer, drop_long, render_demonstration, render_prompt
from .schema import schema_text
from .sources import read_rows
from .splits import TaskSets, shared_values
from .tasks import load_tasks

__all__ = [
    "DataOptions",
    "PreferencePair",
    "TaskSets",
    "Tokenizer",
    "drop_long",
    "load_pairs",
    "load_tasks",
    "read_rows",
    "refuse_leaked_pairs",
    "render_demonstration",
    "render_pair",
    "render_prompt",
    "schema_text",
    "shared_values",
]
