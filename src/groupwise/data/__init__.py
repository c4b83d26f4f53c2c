"""Data: files and hub data sets to tasks, tasks to token ids. Read sources.py, tasks.py, splits.py, render.py."""

from .options import DataOptions
from .render import Tokenizer, drop_long, render_demonstration, render_prompt
from .schema import schema_text
from .sources import read_rows
from .splits import TaskSets, shared_values
from .tasks import load_tasks

__all__ = [
    "DataOptions",
    "TaskSets",
    "Tokenizer",
    "drop_long",
    "load_tasks",
    "read_rows",
    "render_demonstration",
    "render_prompt",
    "schema_text",
    "shared_values",
]
