from __future__ import annotations

import json
from dataclasses import replace

import pytest

from groupwise.curation import CuratedRow, CurateOptions, Curation, Exclusion, Reason
from groupwise.curation.curation_file import Identity, lengths, read_ledger, refuse_foreign, write_ledger
from groupwise.curation.curation_page import curation_page, headline, histogram_lines, reason_table
from groupwise.errors import DataError
from groupwise.pages import render_page

IDENTITY = Identity(model="owner/model", weights="w1", verifier="v1", sampling={"temperature": 1.0, "stop": []}, seed=3)
ROWS = (
    CuratedRow(
        id="a", key="ka", solved=1, scored=3, num_samples=4, prompt_tokens=10,
        completion_tokens=40, scored_tokens=30, solved_tokens=6, longest_tokens=15, notes=("same gold as b",),
    ),
    CuratedRow(
        id="b", key="kb", solved=0, scored=8, num_samples=8, prompt_tokens=20,
        completion_tokens=80, scored_tokens=80, longest_tokens=11,
    ),
    CuratedRow(id="c", key="kc", excluded=Exclusion(reason=Reason.DUPLICATE, detail="of a: the same text")),
    CuratedRow(id="d", key="kd"),
)  # fmt: skip
CURATION = Curation(rows=ROWS, options=CurateOptions(budget=12))


def test_a_ledger_reads_as_it_was_written(tmp_path):
    path = tmp_path / "new" / "ledger.jsonl"
    summary = write_ledger(path, CURATION, IDENTITY, {"trunk_tokens": 5})
    ledger = read_ledger(path)
    assert read_ledger(path.parent) == ledger
    assert ledger.rows == ROWS
    assert ledger.decisions == CURATION.decisions()
    assert ledger.prior == CURATION.prior
    assert ledger.identity == IDENTITY
    assert ledger.summary == summary
    assert summary["trunk_tokens"] == 5
    assert summary["reasons"] == {"kept": 1, "duplicate": 1, "undecided": 2}


def test_every_row_tells_its_posterior_and_its_reason(tmp_path):
    write_ledger(tmp_path / "ledger.jsonl", CURATION, IDENTITY)
    rows = [json.loads(line) for line in (tmp_path / "ledger.jsonl").read_text().splitlines()]
    rate = CURATION.prior.posterior(solved=1, scored=3)
    low, high = rate.interval(0.95)
    assert (rows[0]["mean"], rows[0]["low"], rows[0]["high"]) == pytest.approx((rate.mean, low, high), abs=1e-5)
    assert (rows[0]["kept"], rows[0]["reason"], rows[0]["notes"]) == (True, "kept", ["same gold as b"])
    assert (rows[2]["kept"], rows[2]["reason"], rows[2]["mean"]) == (False, "duplicate", None)


def test_lengths_by_hand():
    assert lengths(ROWS) == {
        "num_prompt_tokens_mean": 15.0,  # of the two that were sampled
        "completion_tokens_mean": 10.0,  # 120 / 12
        "completion_tokens_mean_right": 6.0,
        "completion_tokens_mean_wrong": 10.4,  # (30 - 6 + 80) / (2 + 8)
        "completion_tokens_longest_mean_of_group": 13.0,
        "completion_tokens_longest": 15,
    }
    assert set(lengths(ROWS[2:]).values()) == {None}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"weights": "w2"}, "with other weights"),
        ({"weights": "w2", "model": "other"}, "then owner/model, now other"),
        ({"verifier": "v2"}, "version v1, now v2"),
        ({"sampling": {"temperature": 0.7, "stop": []}}, "rollout.temperature = 1.0, now 0.7"),
    ],
)
def test_counts_of_something_else_are_refused_with_what_differs(tmp_path, changes, told):
    write_ledger(tmp_path / "ledger.jsonl", CURATION, IDENTITY)
    ledger = read_ledger(tmp_path / "ledger.jsonl")
    with pytest.raises(DataError, match="do not hold here") as error:
        refuse_foreign(ledger, replace(IDENTITY, **changes), "Do this.")
    assert told in str(error.value)
    refuse_foreign(ledger, replace(IDENTITY, seed=9, model="renamed"), "Do this.")


def test_what_is_no_ledger_is_refused_with_what_to_do(tmp_path):
    path = tmp_path / "ledger.jsonl"
    with pytest.raises(DataError, match="is made by `groupwise curate`"):
        read_ledger(path)
    write_ledger(path, CURATION, IDENTITY)
    good = path.read_text()
    for bad in ("not JSON\n", good.replace('"solved": 1', '"solved": 9'), good.replace('"kept"', '"key2"')):
        path.write_text(bad)
        with pytest.raises(DataError, match="not a ledger that can be read"):
            read_ledger(path)
    path.write_text(good)
    path.with_suffix(".json").write_text('{"format": 99}')
    with pytest.raises(DataError, match="format is 99"):
        read_ledger(path)


def test_the_page_and_the_terminal_tell_the_same(tmp_path):
    summary = write_ledger(tmp_path / "ledger.jsonl", CURATION, IDENTITY)
    text = headline(CURATION.decisions(), CURATION.num_samples)
    assert text.startswith("1 of 4 training prompts are kept")
    assert "2 are undecided" in text
    page = render_page(curation_page("job", CURATION, summary))
    assert text in page
    assert "owner/model" in page
    assert "of a: the same text" in page
    assert reason_table(CURATION.decisions()).row_count == 3
    lines = histogram_lines(CURATION)
    assert lines[0].startswith("pass rate of 2 sampled prompts")
    assert sum(int(line.split()[-1]) for line in lines[1:]) == 2
    assert histogram_lines(Curation(rows=ROWS[2:])) == []
