from __future__ import annotations

import tomllib

from hypothesis import given
from hypothesis import strategies as st

from groupwise.config.lines import KeyPath, key_lines, line_of

TEXT = '''name = "x"  # 1

[model]
name = "[data]"
"quoted key" = 1
[data.split]
heldout = 3
[rollout]
stop = [
  "seed = 3",
  "]",
]
top_k = 4
note = """
[fake]
seed = 5
"""
a.b = 7
[[stages]]
steps = 1
[stages.optim]
lr = 1
[[stages]]
algorithm = { name = "grpo" }
[stages.optim]
lr = 2
'''


def test_every_key_has_the_line_it_stands_on() -> None:
    lines = key_lines(TEXT)
    rows = TEXT.splitlines()
    assert lines[("model", "name")] == 4
    assert lines[("model", "quoted key")] == 5
    assert lines[("data", "split", "heldout")] == 7
    assert lines[("rollout", "a", "b")] == rows.index("a.b = 7") + 1
    assert rows[lines[("stages", 0, "optim", "lr")] - 1] == "lr = 1"
    assert rows[lines[("stages", 1, "optim", "lr")] - 1] == "lr = 2"
    assert lines[("stages", 1)] == 23


def test_nothing_is_read_inside_texts_and_lists() -> None:
    lines = key_lines(TEXT)
    assert ("fake",) not in lines
    assert key_lines('x = [\n["fake"]\n]\ny = 1') == {("x",): 1, ("y",): 4}
    assert ("rollout", "seed") not in lines
    assert ("rollout", "top_k") in lines


def test_a_key_that_cannot_be_placed_gets_the_line_of_what_encloses_it() -> None:
    lines = key_lines(TEXT)
    assert line_of(("stages", 1, "algorithm", "name"), lines) == 24
    assert line_of(("data", "split", "train"), lines) == 6
    assert line_of(("verifier", "kind"), lines) is None


def paths_of(value: object, path: KeyPath = ()) -> set[KeyPath]:
    if isinstance(value, dict):
        inner = [paths_of(item, (*path, key)) for key, item in value.items()]
        return {path, *set().union(*inner)} if inner else {path}
    return {path}


names = st.sampled_from(["a", "b", "c_d", "e-f"])
values = st.sampled_from(["1", '"x = 1"', "[1, 2]", '[\n ["a"]\n]', "'''\na = 1\n'''", "true # b = 2"])


@given(st.dictionaries(names, st.dictionaries(names, values, min_size=1), min_size=1))
def test_the_keys_found_are_those_that_the_toml_reader_finds(tables: dict[str, dict[str, str]]) -> None:
    text = "\n".join(
        f"[{table}]\n" + "\n".join(f"{key} = {value}" for key, value in keys.items()) for table, keys in tables.items()
    )
    assert set(key_lines(text)) | {()} == paths_of(tomllib.loads(text))
