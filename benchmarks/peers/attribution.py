"""Where the seconds of a step go: tensor operations, sampling, and everything else.

`TensorSeconds` intercepts every call that Python makes into torch and adds up how long it takes; a backward pass and an
optimizer update are one such call each. That needs no knowledge of how a model is put together, and what it does not
see is by definition no tensor work: the Python between the calls, building trees, verdicts, recording, decoding text.
Interception costs a few microseconds a call, which falls outside and so counts against us.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from torch.overrides import TorchFunctionMode

SAMPLER = ("groupwise.rollout.sampling", "draw")
"""The function that draws the next tokens: its tensor work is sampling and no model arithmetic."""


@dataclass(slots=True)
class Seconds:
    """Sums of one step, by name: seconds.add("sampling", 0.01)."""

    by_name: dict[str, float] = field(default_factory=dict)

    def add(self, name: str, seconds: float) -> None:
        """One more piece."""
        self.by_name[name] = self.by_name.get(name, 0.0) + seconds

    def take(self) -> dict[str, float]:
        """The sums so far; starts again from nothing."""
        taken, self.by_name = self.by_name, {}
        return taken


class TensorSeconds(TorchFunctionMode):
    """Adds the time of every torch call of this thread to "tensors", or to "sampling" while the sampler runs."""

    def __init__(self, seconds: Seconds) -> None:
        super().__init__()
        self._seconds = seconds
        self.in_sampler = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        started = time.perf_counter()
        try:
            return func(*args, **(kwargs or {}))
        finally:
            self._seconds.add("sampling" if self.in_sampler else "tensors", time.perf_counter() - started)

    def watch_sampler(self) -> None:
        """Mark the time inside the sampler, in every module that has imported it.

        Raises:
            LookupError: if there is no such function any more.
        """
        module, name = SAMPLER
        draw = getattr(sys.modules.get(module), name, None)
        if draw is None:
            raise LookupError(f"{module}.{name} is gone; name the function that draws tokens in SAMPLER")

        def watched(*args: Any, **options: Any) -> Any:
            self.in_sampler = True
            try:
                return draw(*args, **options)
            finally:
                self.in_sampler = False

        for owner in _importers(draw, name):
            setattr(owner, name, watched)


def _importers(function: Callable[..., Any], name: str) -> list[ModuleType]:
    loaded = [module for key, module in sys.modules.items() if key.startswith("groupwise.")]
    return [module for module in loaded if getattr(module, name, None) is function]


def timed(seconds: Seconds, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, adding its time under a name."""

    def wrapper(*args: Any, **options: Any) -> Any:
        started = time.perf_counter()
        try:
            return function(*args, **options)
        finally:
            seconds.add(name, time.perf_counter() - started)

    return wrapper
