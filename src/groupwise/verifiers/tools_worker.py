"""The part of tool verification that may hang, run in a worker: user-written tool functions, and regular expressions.

A handler script for sandbox.WorkerPool, which loads it by path; it imports the standard library only. A functions file
holds one function a tool, `def get_order(state, *, order_id)`: it reads and changes `state` (tables of records),
returns JSON data, and raises an exception where the call fails, which undoes what it changed.

    {"do": "search", "pattern": p, "text": t}                 {"status": "ok", "found": true}
    {"do": "run", "state": {...}, "calls": [[name, {...}]]}   {"status": "ok", "steps": [[ok, result, state or null]]}
"""

from __future__ import annotations

import copy
import importlib.util
import json
import random
import re
from collections.abc import Callable
from typing import Any


def start(settings: dict[str, Any]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Loads the functions file, if there is one, and returns what answers requests."""
    module: Any = None
    if settings.get("functions"):
        spec = importlib.util.spec_from_file_location("tool_functions", settings["functions"])
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)

    def handle(request: dict[str, Any]) -> dict[str, Any]:
        if request["do"] == "search":
            return {"status": "ok", "found": re.search(request["pattern"], request["text"]) is not None}
        random.seed(0)  # functions that draw numbers draw the same ones for every rollout
        return {"status": "ok", "steps": run_calls(module, request["state"], request["calls"])}

    return handle


def run_calls(module: Any, state: Any, calls: list[Any]) -> list[Any]:
    """[ok, result, state after the call, or null where nothing changed] for every call, in order."""
    steps: list[Any] = []
    for name, arguments in calls:
        trial = copy.deepcopy(state)
        try:
            function = module.__dict__.get(name)
            if not callable(function):
                raise LookupError(f"no function {name}")
            result = json.loads(json.dumps(function(trial, **arguments), allow_nan=False))
            changed = json.loads(json.dumps(trial, allow_nan=False))
        except MemoryError:
            raise
        except Exception as error:  # the boundary between the verifier and what a user wrote: a call that fails
            steps.append([False, {"error": f"{type(error).__name__}: {error}"[:500]}, None])
            continue
        steps.append([True, result, changed if changed != state else None])
        state = changed
    return steps
