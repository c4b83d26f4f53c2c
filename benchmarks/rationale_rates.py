"""How often the rationale checks are right: on labelled human rationales, and on the same ones under another label.

    python benchmarks/rationale_rates.py FOLDER

FOLDER holds `esnli_dev_4k.jsonl` (e-SNLI: premise, hypothesis, label, explanations) and `cose/` (CoS-E with its
questions). The rationale-to-label model is fitted on the rationales of four fifths of the premises and tried on those
of the others, so that no premise is on both sides. Intervals are 95 % Wilson intervals; the rationales of one task are
not independent, so the true ones are somewhat wider.
"""

from __future__ import annotations

import argparse
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from groupwise.runs.intervals import wilson
from groupwise.verifiers.rationale_gates import Source, gate_checks
from groupwise.verifiers.rationale_model import fit_model
from groupwise.verifiers.rationale_text import words

LABELS = ["entailment", "neutral", "contradiction"]
CONTRADICTS_AT = 0.9
"""The verifier's default: how sure of another label the model must be."""
MAX_WORDS = 200


def rows_of(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def is_held_out(row: dict[str, Any]) -> bool:
    return zlib.crc32(row["premise"].encode()) % 5 == 0


def esnli(path: Path) -> list[tuple[str, int, int]]:
    """(what, how many, of how many) for the model alone and for the gates with the model."""
    rows = list(rows_of(path))
    known = [(row["label"], text) for row in rows if not is_held_out(row) for text in row["explanations"]]
    model = fit_model(known, LABELS)
    right = honest = honest_flagged = swapped = swapped_flagged = honest_failed = swapped_failed = 0
    for row in filter(is_held_out, rows):
        source = Source.of(row["premise"] + "\n" + row["hypothesis"])
        for text in row["explanations"]:
            tokens = words(text)
            probabilities = model.probabilities(tokens)
            right += max(probabilities, key=lambda label: probabilities[label]) == row["label"]
            for label in LABELS:
                checks = gate_checks(text, label=label, labels=LABELS, source=source, max_words=MAX_WORDS)
                flagged = model.opinion(tokens, label).contradicts(CONTRADICTS_AT)
                failed = flagged or not all(check.passed for check in checks)
                if label == row["label"]:
                    honest, honest_flagged, honest_failed = honest + 1, honest_flagged + flagged, honest_failed + failed
                else:
                    swapped, swapped_flagged = swapped + 1, swapped_flagged + flagged
                    swapped_failed += failed
    return [
        ("e-SNLI: the model names the label", right, honest),
        ("e-SNLI: the model flags an honest rationale", honest_flagged, honest),
        ("e-SNLI: the model flags a swapped label", swapped_flagged, swapped),
        ("e-SNLI: gates and model fail an honest rationale", honest_failed, honest),
        ("e-SNLI: gates and model fail a swapped label", swapped_failed, swapped),
    ]


def cose(folder: Path, version: str) -> tuple[str, int, int]:
    """How many human rationales of CoS-E pass the gates; a question's choices are part of its input."""
    questions = {row["id"]: row for row in rows_of(folder / "dev_rand_split.jsonl")}
    passed = number = 0
    for row in rows_of(folder / f"cose_dev_{version}.jsonl"):
        if row["id"] not in questions:
            continue
        question = questions[row["id"]]
        choices = {choice["label"]: choice["text"] for choice in question["question"]["choices"]}
        checks = gate_checks(
            row["explanation"]["open-ended"],
            label=choices[question["answerKey"]],
            labels=list(choices.values()),
            source=Source.of("\n".join([question["question"]["stem"], *choices.values()])),
            max_words=MAX_WORDS,
        )
        number += 1
        passed += all(check.passed for check in checks)
    return f"CoS-E {version}: a human rationale passes the gates", passed, number


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder with esnli_dev_4k.jsonl and cose/")
    folder = parser.parse_args().folder
    if not (folder / "esnli_dev_4k.jsonl").is_file():
        parser.error(f"there is no esnli_dev_4k.jsonl in {folder}")
    print("| what | share | 95 % | count |\n|---|---|---|---|")
    found = [*esnli(folder / "esnli_dev_4k.jsonl"), *(cose(folder / "cose", version) for version in ("v1.0", "v1.11"))]
    for what, count, number in found:
        interval = wilson(count, number)
        print(f"| {what} | {count / number:.1%} | {interval.low:.1%} - {interval.high:.1%} | {count} / {number} |")


if __name__ == "__main__":
    main()
