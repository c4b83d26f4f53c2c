"""environment.json: the versions, the device and the sizes that a run was made with."""

from __future__ import annotations

import os
from typing import Any

import torch

from groupwise.launch.device_memory import memory_limit_bytes
from groupwise.launch.run_state import Run
from groupwise.runs import software_versions


def environment_of(run: Run, verifier_version: str, numerics: dict[str, object] | None) -> dict[str, Any]:
    """The environment of a run before its first stage; numerics is what sampler and trainer were found to differ by."""
    model = run.policy.loaded.model
    return {
        "versions": software_versions(),
        "verifier_version": verifier_version,
        "model_source": run.policy.loaded.source,
        "device": str(model.device),
        "dtype": str(next(model.parameters()).dtype).removeprefix("torch."),
        "memory_limit_bytes": memory_limit_bytes(model.device),
        "planned_seconds": None if run.plan is None else run.plan.seconds,
        "token_tree": not run.policy.note,
        "numerics": numerics,
        "threads": torch.get_num_threads(),
        "omp_wait_policy": os.environ.get("OMP_WAIT_POLICY"),
        "num_tasks": {
            "demonstrations": len(run.sets.demonstrations),
            "train": len(run.sets.train.tasks),
            "heldout": len(run.sets.heldout.tasks),
            **({"pairs": len(run.sets.pairs)} if run.sets.pairs else {}),
        },
    }
