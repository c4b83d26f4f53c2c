"""Loads a reward function and calls it the way TRL does, for one completion. Standard library only.

TRL calls   f(prompts=[...], completions=[...], **columns) -> list[float | None]   for a batch, every column a list of
the same length; a coroutine function is awaited. Here the lists have length 1. A function without **kwargs is given
the columns it names and no others.

This file is also the handler of a worker: then `start` is called by sandbox/child.py and nothing of this package is
imported. A pickle goes in (it comes from the trainer), JSON comes out.

    request   {"call": base64 pickle of {"prompt", "completion", "columns"}, "cpu_limit_s"}
    reply     {"status": "ok", "value": float} or {"status": a word of CALL_FAULTS, "message"}
"""

from __future__ import annotations

import asyncio
import base64
import importlib
import importlib.util
import inspect
import math
import numbers
import pickle
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

CALL_FAULTS = frozenset(
    {
        "load_failed",
        "column_missing",
        "function_raised",
        "wrong_type",
        "wrong_length",
        "no_reward",
        "not_a_number",
        "not_finite",
        "memory",
    }
)
_NOT_HERE = frozenset({"completion_ids", "prompt_ids", "trainer_state", "environments", "images"})
_LOGGERS = ("log_extra", "log_metric")


class CallFailed(Exception):
    """The function gave no number: CallFailed("not_finite", "it returned nan")."""

    def __init__(self, word: str, message: str) -> None:
        super().__init__(f"{word}: {message}")
        self.word = word
        self.message = message


def load_function(place: str, folder: Path) -> Callable[..., Any]:
    """The function at "package.module:name" or "file.py:name"; a file is looked up from `folder`.

    `folder` and a file's own folder go to the end of sys.path, so that the function finds its neighbours.

    Raises:
        CallFailed: load_failed, with what the import or the look-up said.
    """
    source, _, name = place.rpartition(":")
    file = folder / source if source.endswith(".py") else None
    for entry in (str(file.parent) if file else "", str(folder)):
        if entry and entry not in sys.path:
            sys.path.append(entry)
    try:
        module = importlib.import_module(source) if file is None else _module_of(file)
        function: Any = module
        for part in name.split("."):
            function = getattr(function, part)
    except BaseException as error:  # the user's module may do anything while it is imported, leave included
        if isinstance(error, KeyboardInterrupt):
            raise
        raise CallFailed("load_failed", f"{place}: {type(error).__name__}: {error}") from error
    if not callable(function):
        raise CallFailed("load_failed", f"{place} is a {type(function).__name__}, not a function")
    loaded: Callable[..., Any] = function
    return loaded


def _module_of(file: Path) -> Any:
    name = f"groupwise_reward_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look a class up in its module
    spec.loader.exec_module(module)
    return module


def call_function(function: Callable[..., Any], prompt: Any, completion: Any, columns: Mapping[str, Any]) -> float:
    """The number that the function gives one completion.

    Raises:
        CallFailed: it raised, lacks an argument, or returned anything but a list of one finite number.
    """
    arguments = arguments_of(function, prompt, completion, columns)
    try:
        returned = function(**arguments)
        if inspect.isawaitable(returned):
            returned = asyncio.run(_awaited(returned))
    except MemoryError as error:
        raise CallFailed("memory", "the function ran out of memory") from error
    except BaseException as error:  # SystemExit too: a reward function must not end the run
        if isinstance(error, KeyboardInterrupt):
            raise
        raise CallFailed("function_raised", f"{type(error).__name__}: {error}"[:500]) from error
    return one_number(returned)


async def _awaited(returned: Any) -> Any:
    return await returned


def arguments_of(
    function: Callable[..., Any], prompt: Any, completion: Any, columns: Mapping[str, Any]
) -> dict[str, list[Any] | Callable[..., None]]:
    """Keyword arguments: lists of length 1, and functions that log nothing where the function asks for TRL's.

    Raises:
        CallFailed: column_missing, where a required argument is neither of them.
    """
    given: dict[str, Any] = {name: [value] for name, value in columns.items()}
    given |= {"prompts": [prompt], "completions": [completion]}
    given |= dict.fromkeys(_LOGGERS, _log_nothing)
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some functions written in C have no signature
        return given
    wanted = {p.name: p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    missing = [name for name, p in wanted.items() if p.default is p.empty and name not in given]
    if missing:
        hint = "a verifier is not given it" if missing[0] in _NOT_HERE else f"columns: {', '.join(sorted(columns))}"
        raise CallFailed("column_missing", f"the function needs {missing[0]!r}, which the task does not have ({hint})")
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return given
    return {name: value for name, value in given.items() if name in wanted}


def _log_nothing(*_: Any, **__: Any) -> None:
    return None


def one_number(returned: Any) -> float:
    """The number in what a function returned for one completion. Arrays and tensors count as lists, their scalars as
    numbers; booleans are 0 and 1.

    Raises:
        CallFailed: wrong_type, wrong_length, no_reward, not_a_number or not_finite.
    """
    if not isinstance(returned, (list, tuple)):
        as_list = getattr(returned, "tolist", None)
        if not callable(as_list) or isinstance(returned, type):
            raise CallFailed("wrong_type", f"it returned {_kind(returned)}, a list with one number is expected")
        returned = as_list()
        if not isinstance(returned, list):
            raise CallFailed(
                "wrong_type", "it returned an array without dimensions, a list with one number is expected"
            )
    if len(returned) != 1:
        raise CallFailed("wrong_length", f"it returned {len(returned)} rewards for 1 completion")
    value = returned[0]
    if value is None:
        raise CallFailed("no_reward", "it returned None: the function does not judge this task")
    if not isinstance(value, numbers.Real):
        value = _scalar(value)
    try:
        number = float(value)
    except (OverflowError, TypeError, ValueError) as error:
        raise CallFailed("not_finite", f"it returned {_kind(value)} that fits no float") from error
    if not math.isfinite(number):
        raise CallFailed("not_finite", f"it returned {number}")
    return number


def _scalar(value: Any) -> Any:
    """What .item() of a numpy or torch scalar gives; neither library is imported."""
    item = getattr(value, "item", None)
    if callable(item) and not isinstance(value, type):
        try:
            inner = item()
        except Exception as error:  # several elements, a meta tensor: the library's own words say it best
            raise CallFailed("not_a_number", f"it returned {_kind(value)}: {error}"[:300]) from error
        if isinstance(inner, numbers.Real):
            return inner
    raise CallFailed("not_a_number", f"it returned {_kind(value)} in its list, a number or None is expected")


def _kind(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")


def start(settings: Mapping[str, Any]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Called once in a fresh worker. settings: {"place", "folder", "path": the trainer's sys.path}."""
    path: Sequence[str] = settings["path"]
    sys.path[:] = [*path, *(entry for entry in sys.path if entry not in path)]
    failed: CallFailed | None = None
    function: Callable[..., Any] | None = None
    try:
        function = load_function(settings["place"], Path(settings["folder"]))
    except CallFailed as error:
        failed = error

    def handle(request: dict[str, Any]) -> dict[str, Any]:
        if function is None:
            assert failed is not None
            return {"status": failed.word, "message": failed.message}
        try:
            call = pickle.loads(base64.b64decode(request["call"]))
        except Exception as error:  # a class that this process cannot import
            return {"status": "load_failed", "message": f"the task's columns: {type(error).__name__}: {error}"}
        try:
            return {
                "status": "ok",
                "value": call_function(function, call["prompt"], call["completion"], call["columns"]),
            }
        except CallFailed as error:
            return {"status": error.word, "message": error.message}

    return handle
