"""MathVerifier as a whole: equal and unequal answers, where an answer stands, whose fault a failure is, real data."""

import json
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from case_tasks_math import tasks as case_tasks
from hypothesis import given, settings
from hypothesis import strategies as st

from groupwise.config.verifier_math import MathVerifierSection
from groupwise.errors import VerifierError
from groupwise.sandbox.workers import WorkerCrashed, WorkerTimeout
from groupwise.types import Status, Task
from groupwise.verifiers.math_verifier import MathVerifier


@pytest.fixture(scope="module")
def verifier():
    verifier = MathVerifier(time_limit_s=5.0, num_workers=1)
    yield verifier
    verifier.close()


def task(gold, **columns):
    return Task(id="t", prompt="?", columns={"gold": gold, **columns})


def box(text):
    return f"So it is \\boxed{{{text}}}."


EQUAL = [
    ("13", r"\text{13}"),
    ("73", "**73**"),
    (r"7.41\%", r"7.41\%"),
    ("1000", "1,000"),
    ("1800", "1{,}800"),
    ("0.5", "1/2"),
    ("2.5", r"2\frac{1}{2}"),
    ("1500", r"1.5\times 10^{3}"),
    ("5", "x=5"),
    ("18", r"18\text{ dollars}"),
    ("-18", r"-\$18"),
    ("90", r"90^\circ"),
    ("18", "\uff11\uff18"),
    (r"-\frac12", r"\frac{-1}{2}"),
    ("1,2", r"2 \text{ and } 1"),
    ("n=2,3,4", "4, 3, 2"),
    (r"\pm 3", "3,-3"),
    ("[1,2)", r"x\in[1,2)"),
    (r"(-\infty,1)\cup(2,\infty)", r"x\in(2,\infty)\cup(-\infty,1)"),
    ("x=1,y=2", "y=2, x=1"),
    ("Evelyn", r"\text{Evelyn}"),
    ("B", r"\text{(B)}"),
    ("12:00", "12:00"),
    ("1/2^99", r"\frac{1}{2^{99}}"),
]
EQUAL_BY_ALGEBRA = [
    (r"\sqrt{2}", r"\frac{2}{\sqrt{2}}"),
    ("3x-y+13=0", "y=3x+13"),
    ("3x-y+13=0", "6x-2y+26=0"),
    ("(x+1)^2", "x^2+2x+1"),
    ("y=x+1", "x+1"),
    ("0.1x", r"\frac{x}{10}"),
    (r"\{\sqrt2,\sqrt3\}", r"\{\sqrt{3},\sqrt{2}\}"),
    (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}"),
]
UNEQUAL = [
    ("1/2^99", r"\frac{1}{2^{98}}", "wrong_value"),
    ("n=2,3,4", "n=1,2,3", "wrong_value"),
    ("(0,1)", "(0,1.5)", "wrong_value"),
    ("2021", r"\pm 2021", "wrong_form"),
    ("12:00", "1:00", "wrong_value"),
    ("4", r"4\sqrt3", "unevaluated"),
    ("18", "17 or 18", "wrong_form"),
    ("18", "17, 18", "wrong_form"),
    ("18", r"2\cdot 9", "unevaluated"),
    ("120", "5!", "unevaluated"),
    ("18", "36/2", "unevaluated"),
    ("16", "2^4", "unevaluated"),
    ("18", "20-2=18", "unevaluated"),
    ("50", r"50\%", "wrong_unit"),
    ("0.5", r"50\%", "wrong_unit"),
    ("0.5", r"5000\%", "wrong_unit"),
    ("5 m", "5 cm", "wrong_unit"),
    ("1e-20", "1", "wrong_value"),
    ("x=1,y=2", "x=2, y=1", "wrong_value"),
    ("[1,2)", "(1,2)", "wrong_form"),
    ("25", "5\u00b2", "unevaluated"),
    ("52", "5\u00b2", "wrong_value"),
    ("3", "three", "wrong_form"),
    ("1", "10^{10^8}", "too_complex"),
    ("1", "(10^{10^6})!", "too_complex"),
    ("18", r"\int_0^1 e^{x^2}dx", "too_complex"),
    ("18", "__import__('os').system('true')", "unreadable"),
    ("18", "9" * 5000, "too_large"),
    ("18", "{" * 300 + "18" + "}" * 300, "too_complex"),
]
UNEQUAL_BY_ALGEBRA = [
    (r"\frac{1}{2004!}", r"\frac{1}{2006!}"),
    (r"\sqrt2", "1.414214"),
    (r"\sqrt2", "2"),
    (r"4\sqrt3", "4"),
    ("3x-y+13=0", "3x+4y+14=0"),
    ("x+1", "x+1+10^{-40}"),
    ("x>3", r"x\ge 3"),
    ("x+1", "x+1=x+1"),
]


@pytest.mark.parametrize(("gold", "answer"), EQUAL)
def test_equal_values_earn_1(verifier, gold, answer):
    verdict = verifier.judge(task(gold), box(answer))
    assert (verdict.reward, verdict.outcome) == (1.0, True), verdict.reason


@pytest.mark.parametrize(("gold", "answer", "word"), UNEQUAL)
def test_unequal_values_earn_0_and_say_why(verifier, gold, answer, word):
    verdict = verifier.judge(task(gold), box(answer))
    assert (verdict.reward, verdict.outcome) == (0.0, False)
    assert verdict.reason.startswith(f"{word}: ")


def test_algebra_where_math_verify_is_right_and_where_it_rounds(verifier):
    for gold, answer in EQUAL_BY_ALGEBRA:
        assert verifier.judge(task(gold), box(answer)).reward == 1.0, (gold, answer)
    for gold, answer in UNEQUAL_BY_ALGEBRA:
        assert verifier.judge(task(gold), box(answer)).reward == 0.0, (gold, answer)


@pytest.mark.parametrize(
    ("gold", "completion", "reward"),
    [
        ("7", r"\boxed{5} ... no: \boxed{7}", 1.0),
        ("5", r"\boxed{5} ... no: \boxed{7}", 0.0),
        ("3", r"\boxed{1} \boxed{2} \boxed{3}", 0.0),
        ("18", r"\boxed{17} or \boxed{18}", 0.0),
        ("42", r"<answer>\boxed{42}</answer>", 1.0),
        ("5", "<think></think>a", 0.0),
        ("5", "<answer>5</answer>" * 50, 0.0),
        ("5", "```\n<answer>5</answer>\n```", 0.0),
        ("5", "<think>x</tool><answer>5</answer>", 0.0),
        ("5", "<answer>5</answer><think>5</think>", 0.0),
        ("5", r"<think>\boxed{4}</think>\boxed{5}", 1.0),
        ("18", r"\boxed{18", 0.0),
        ("18", r"\boxed{18} and again \boxed{18.0}", 1.0),
        ("18", "#### Step 1: add\nthen\n\\boxed{18}\n#### Note", 1.0),
        ("18", "Answer 18", 0.0),
        ("18", "", 0.0),
    ],
)
def test_which_answer_counts(verifier, gold, completion, reward):
    assert verifier.judge(task(gold), completion).reward == reward


def test_refusing_several_answers_is_a_setting():
    strict = MathVerifier(several_answers="refuse")
    verdict = strict.judge(task("7"), r"\boxed{5} ... no: \boxed{7}")
    assert (verdict.status, verdict.reason.split(":")[0]) == (Status.INVALID, "several_answers")
    assert strict.judge(task("7"), r"\boxed{7}, which is \boxed{7.0}").reward == 1.0


@pytest.mark.parametrize("answer_in", ["auto", "boxed", "hash", "tag", "line", "text"])
@pytest.mark.parametrize("gold", ["-3", "1/3", r"\{1,2\}", 145.0, "so 5 * 3 = 15\n#### 15", r"thus \boxed{\frac12}"])
def test_a_gold_earns_1_in_every_form(answer_in, gold):
    verifier = MathVerifier(answer_in=answer_in)
    assert verifier.judge(task(gold), verifier.gold(task(gold))).reward == 1.0


@pytest.mark.parametrize(
    ("percent", "gold", "answer", "reward"),
    [
        ("ignore", "50", r"50\%", 1.0),
        ("ignore", "0.5", r"50\%", 0.0),
        ("fraction", "0.5", r"50\%", 1.0),
        ("fraction", "50", r"50\%", 0.0),
        ("fraction", r"50\%", "0.5", 1.0),
    ],
)
def test_percent_only_where_it_is_allowed(percent, gold, answer, reward):
    assert MathVerifier(percent=percent).judge(task(gold), box(answer)).reward == reward


def test_tolerance_needs_a_gold_with_a_decimal_point():
    verifier = MathVerifier(rel_tolerance=0.01)
    assert verifier.judge(task("3.14"), box("3.15")).reward == 1.0  # 0.01 / 3.14 = 0.0032
    assert verifier.judge(task("3.14"), box("3.18")).reward == 0.0  # 0.04 / 3.14 = 0.0127
    assert verifier.judge(task("1000"), box("1001")).reward == 0.0


def test_golds_that_cannot_be_read_are_listed_and_never_paid(verifier):
    golds = {"ok": "4", "marks": "??", "empty": " ", "none": None, "bool": True, "nan": float("nan")}
    tasks = [Task(id=name, prompt="?", columns={"gold": gold}) for name, gold in golds.items()]
    problems = {problem.task_id: problem.reason.split(":")[0] for problem in verifier.check(tasks)}
    missing = dict.fromkeys(("empty", "none", "bool", "nan"), "gold_missing")
    assert problems == {"marks": "gold_unreadable"} | missing
    verdict = verifier.judge(tasks[1], box("??"))
    assert (verdict.status, verdict.reward) == (Status.UNSCORED, None)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    value=st.fractions(-(10**6), 10**6, max_denominator=999),
    dress=st.sampled_from(["{}", " {} ", "${}$", r"\({}\)", "{}.", r"\mathrm{{{}}}", "**{}**", "+{}", "x = {}"]),
)
def test_dress_does_not_matter_and_value_does(value, dress):
    verifier = MathVerifier()
    answer = dress.format(value) if value >= 0 else dress.replace("+", "").format(value)
    wrong = dress.replace("+", "").format(value + 1)
    assert verifier.judge(task(str(value)), box(answer)).reward == 1.0
    assert verifier.judge(task(str(value)), box(wrong)).reward == 0.0


HOSTILE = ["\\boxed{", "{", "}", "$", "\\frac", "^", "####", "<answer>", "</answer>", "<think>", "```\n", "9", ",", "("]


@settings(max_examples=80, deadline=None, derandomize=True)
@given(
    parts=st.lists(
        st.sampled_from([*HOSTILE, "1", " ", "\n", "\\", "}{", "\u00b2", "-", "or", "\\pm", "="]), max_size=40
    )
)
def test_no_text_raises_or_is_unscored(parts):
    for text in ("".join(parts), box("".join(parts))):
        assert MathVerifier().judge(task("18"), text).status is not Status.UNSCORED


@pytest.mark.parametrize("piece", [*HOSTILE, "\\boxed{1} ", "#### 1\n", "<answer>1</answer>", "Answer: 1\n", " "])
def test_a_megabyte_takes_no_time(piece):
    text = piece * (1_000_000 // len(piece))
    started = time.process_time()
    for answer_in in ("auto", "line", "text"):
        assert MathVerifier(answer_in=answer_in).judge(task("18"), text).reward == 0.0
    assert time.process_time() - started < 5.0  # a quadratic scan would need minutes


def test_a_slow_or_deadly_answer_is_the_answers_fault(verifier, monkeypatch):
    def call(request, **limits):
        if request["answer"] == request["gold"]:
            return {"status": "ok", "equal": True}
        raise WorkerTimeout("slow") if "7" in request["answer"] else WorkerCrashed("gone")

    fresh = MathVerifier()
    monkeypatch.setattr(fresh._pool, "call", call)
    words = [fresh.judge(task(r"\sqrt2"), box(answer)) for answer in (r"\sqrt7", r"\sqrt5")]
    assert [(v.status, v.reason.split(":")[0]) for v in words] == [
        (Status.INVALID, "timeout"),
        (Status.INVALID, "crash"),
    ]
    fresh.close()


def test_without_workers_expressions_are_unscored_and_numbers_are_not():
    closed = MathVerifier()
    closed.close()
    verdict = closed.judge(task(r"\sqrt2"), box(r"\sqrt2"))
    assert (verdict.status, verdict.reason.split(":")[0]) == (Status.UNSCORED, "worker_failed")
    assert closed.judge(task("18"), box("18")).reward == 1.0


def test_many_threads_get_the_same_verdicts(verifier):
    answers = [r"\sqrt{8}", r"2\sqrt2", "3", r"\sqrt{9}", "x"] * 8
    with ThreadPoolExecutor(8) as threads:
        rewards = list(threads.map(lambda answer: verifier.judge(task(r"2\sqrt{2}"), box(answer)).reward, answers))
    assert rewards == [1.0, 1.0, 0.0, 0.0, 0.0] * 8


def test_version_follows_the_settings():
    assert MathVerifier().version == MathVerifier(num_workers=1).version
    assert MathVerifier().version != MathVerifier(percent="ignore").version


@pytest.mark.parametrize(
    "wrong", [{"answer_in": "last"}, {"rel_tolerance": 1.0}, {"percent": "yes"}, {"num_workers": 0}]
)
def test_settings_that_cannot_be_used_are_refused(wrong):
    with pytest.raises(VerifierError, match=next(iter(wrong))):
        MathVerifier(**wrong)


def test_the_section_fits_the_verifier():
    section = MathVerifierSection(kind="math")
    MathVerifier(**section.model_dump(exclude={"kind", "unusable_gold"}))


def test_labelled_cases(shared):
    cases = case_tasks(shared / "handbook" / "cases.jsonl")
    assert len(cases) == 14
    for case_id, section, case, completion, expected in cases:
        parsed = MathVerifierSection.model_validate(section)
        own = MathVerifier(**parsed.model_dump(exclude={"kind", "unusable_gold"}))
        verdict = own.judge(case, completion)
        assert verdict.status is not Status.UNSCORED, case_id
        assert (verdict.reward == 1.0) == (expected == "PASS"), (case_id, verdict.reason)


@pytest.mark.parametrize(("file", "column"), [("gsm8k_test.jsonl", "answer"), ("svamp_test.jsonl", "Answer")])
def test_public_golds_pass_and_neighbours_fail(shared, file, column):
    verifier = MathVerifier(gold_column=column)
    lines = (shared / "data" / "math" / file).read_text(encoding="utf-8").splitlines()
    tasks = [Task(id=str(n), prompt="?", columns=json.loads(line)) for n, line in enumerate(lines)]
    assert len(tasks) >= 1000
    assert verifier.check(tasks) == []
    for one in tasks:
        number = str(one.columns[column]).rpartition("####")[2].strip().replace(",", "")
        for wrong in (f"{number}7" if "." in number else f"{number}.7", f"-{number}1", f"1{number.lstrip('-')}"):
            assert verifier.judge(one, box(wrong)).reward == 0.0, (number, wrong)


@pytest.mark.parametrize("several_answers", ["last", "refuse"])
@pytest.mark.parametrize("long", ["9" * 5000, "1" + " " * 60_000 + "x", "1" * 2000 + ",2"])
def test_an_earlier_answer_of_any_length_is_not_read(several_answers, long):
    verifier = MathVerifier(several_answers=several_answers)  # Python refuses to read 5000 digits; scans of blanks grow
    hedge = verifier.judge(task("3"), f"\\boxed{{{long}}} or \\boxed{{3}}")
    assert (hedge.status, hedge.reason.split(":")[0]) == (Status.INVALID, "several_answers")
    apart = verifier.judge(task("3"), f"\\boxed{{{long}}} is what I thought, but it is \\boxed{{3}}")
    assert (apart.reward == 1.0) == (several_answers == "last")
