import json
import zlib

import pytest
from case_tasks_rationale import NLI, completion

from groupwise.types import Task
from groupwise.verifiers.classification import ClassificationVerifier

LABELS = NLI["labels"]


@pytest.fixture(scope="module")
def esnli(shared, tmp_path_factory):
    """(verifier trained on four fifths of the premises, tasks of the other fifth); no premise is in both."""
    path = shared / "data" / "classification" / "esnli_dev_4k.jsonl"
    if not path.is_file():
        pytest.skip(f"no {path.name} in the reference data")
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    held_out = [zlib.crc32(row["premise"].encode()) % 5 == 0 for row in rows]
    examples = tmp_path_factory.mktemp("esnli") / "examples.jsonl"
    examples.write_text("\n".join(json.dumps(row) for row, out in zip(rows, held_out, strict=True) if not out))
    verifier = ClassificationVerifier(
        labels=LABELS,
        input_columns=NLI["input_columns"],
        rationale_column="explanations",
        rationale_examples=str(examples),
    )
    tasks = [Task(id=str(i), prompt="", columns=row) for i, row in enumerate(rows) if held_out[i]]
    return verifier, tasks


def flagged(verifier, tasks):
    """[reason word] for the first human rationale of each task under its own label and under each other label."""
    honest, swapped = [], []
    for task in tasks:
        rationale = task.columns["explanations"][0]
        for label in LABELS:
            given = Task(id=task.id, prompt="", columns={**task.columns, "label": label})
            word = verifier.judge(given, completion(label, rationale)).reason.split(":")[0]
            (honest if label == task.columns["label"] else swapped).append(word)
    return honest, swapped


def test_swapped_labels_are_flagged_and_honest_rationales_pass(esnli):
    # Measured on all 2,433 held-out rationales: 7.6 % of the honest ones fail, 85.7 % of the swapped ones.
    honest, swapped = flagged(*esnli)
    assert len(honest) > 700
    assert honest.count("supported") / len(honest) > 0.90
    assert swapped.count("argues_other_label") / len(swapped) > 0.80
    gates = [word for word in honest if word not in ("supported", "argues_other_label")]
    assert len(gates) / len(honest) < 0.03


def test_nearly_every_task_is_proved_by_one_of_its_rationales(esnli):
    verifier, tasks = esnli
    unusable = verifier.check(tasks)
    assert len(unusable) <= len(tasks) // 200
    refused = {problem.task_id for problem in unusable}
    kept = [task for task in tasks if task.id not in refused]
    assert all(verifier.judge(task, verifier.gold(task)).reward == 1.0 for task in kept)


def test_one_template_for_every_input_earns_little(esnli):
    verifier, tasks = esnli
    for text in ("There is not enough information to tell.", "One implies the other.", "Both cannot happen at once."):
        earned = sum(
            verifier.judge(task, completion(task.columns["label"], text)).reward == 1.0 for task in tasks[:300]
        )
        assert earned <= 30, text
