from __future__ import annotations

from typing import Any

import pytest

from groupwise.data import drop_long, render_demonstration, render_prompt
from groupwise.errors import DataError
from groupwise.types import Prompt, Task

BOS, END, USER, ASSISTANT, HOW, MANY, THREE = range(1, 8)
WORDS = {"<s>": BOS, "<end>": END, "user": USER, "assistant": ASSISTANT, "how": HOW, "many": MANY, "three": THREE}
ASKED = Task(id="q", prompt=({"role": "user", "content": "how many"},), demonstration="three")


class WordTokenizer:
    """Splits at spaces. Puts `before` in front of a text and `after` behind it; its template writes <s> itself."""

    def __init__(self, before: list[int], after: list[int], *, as_mapping: bool = False, template: str | None = "t"):
        self.before, self.after, self.as_mapping, self.chat_template = before, after, as_mapping, template

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        ids = [WORDS[word] for word in text.split()]
        return [*self.before, *ids, *self.after] if add_special_tokens else ids

    def apply_chat_template(self, conversation: Any, **options: Any) -> Any:
        assert options["tokenize"]
        if conversation[0]["role"] == "system":
            raise ValueError("no system turns")
        text = "<s> " + " ".join(f"{turn['role']} {turn['content']} <end>" for turn in conversation)
        ids = self.encode(text + " assistant" * options["add_generation_prompt"], add_special_tokens=False)
        return {"input_ids": ids} if self.as_mapping else ids


PLAIN = WordTokenizer([], [])
WITH_BOS = WordTokenizer([BOS], [])
WITH_BOTH = WordTokenizer([BOS], [END])


@pytest.mark.parametrize("tokenizer", [PLAIN, WITH_BOS, WITH_BOTH, WordTokenizer([BOS], [], as_mapping=True)])
def test_turns_get_the_special_tokens_of_the_template_only(tokenizer: WordTokenizer) -> None:
    assert render_prompt(ASKED, tokenizer).token_ids == (BOS, USER, HOW, MANY, END, ASSISTANT)


@pytest.mark.parametrize(
    ("tokenizer", "text", "expected"),
    [
        (PLAIN, "how many", (HOW, MANY)),
        (WITH_BOS, "how many", (BOS, HOW, MANY)),
        (WITH_BOS, "<s> how many", (BOS, HOW, MANY)),
        (PLAIN, "<s> how many", (BOS, HOW, MANY)),
        (WITH_BOTH, "how many", (BOS, HOW, MANY)),
        (WITH_BOTH, "how <end>", (BOS, HOW, END)),
    ],
)
def test_text_begins_with_one_bos_and_gets_no_end(
    tokenizer: WordTokenizer, text: str, expected: tuple[int, ...]
) -> None:
    assert render_prompt(Task(id="q", prompt=text), tokenizer) == Prompt(task_id="q", token_ids=expected)


@pytest.mark.parametrize("tokenizer", [PLAIN, WITH_BOTH])
@pytest.mark.parametrize("text", ["three", "three <end>", "three <end> <end>"])
def test_a_demonstration_ends_with_the_end_token_once(tokenizer: WordTokenizer, text: str) -> None:
    task = Task(id="q", prompt=ASKED.prompt, demonstration=text)
    prompt, completion = render_demonstration(task, tokenizer, END)
    assert completion == (THREE, END)
    assert prompt == render_prompt(task, tokenizer)


def test_what_cannot_be_rendered_is_refused() -> None:
    with pytest.raises(DataError, match=r"no chat template.*remove data\.system_prompt"):
        render_prompt(ASKED, WordTokenizer([], [], template=None))
    with pytest.raises(DataError, match="refuses the turns: no system turns"):
        render_prompt(Task(id="q", prompt=({"role": "system", "content": "how"},)), PLAIN)
    with pytest.raises(DataError, match="has no tokens"):
        render_prompt(Task(id="q", prompt=" "), PLAIN)
    with pytest.raises(DataError, match=r"data\.columns\.demonstration"):
        render_demonstration(Task(id="q", prompt="how"), PLAIN, END)


def test_long_prompts_are_dropped_whole_and_counted() -> None:
    prompts = [Prompt(task_id=str(n), token_ids=tuple(range(n))) for n in (3, 5, 4)]
    assert drop_long(prompts, max_tokens=4) == ((prompts[0], prompts[2]), 1)
    assert drop_long(prompts, max_tokens=10_000) == (tuple(prompts), 0)
    assert drop_long([], max_tokens=4) == ((), 0)
    with pytest.raises(DataError, match=r"all 3 prompts .*max_prompt_tokens = 2; the shortest has 3"):
        drop_long(prompts, max_tokens=2)


def test_a_hugging_face_tokenizer_gives_the_same() -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    inner = Tokenizer(models.WordLevel(WORDS, unk_token="<s>"))
    inner.add_special_tokens(["<s>", "<end>"])
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    inner.post_processor = processors.TemplateProcessing(
        single="<s> $A <end>", special_tokens=[("<s>", 1), ("<end>", 2)]
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, bos_token="<s>", eos_token="<end>")
    tokenizer.chat_template = (
        "{{ bos_token }}{% for m in messages %} {{ m.role }} {{ m.content }} <end>{% endfor %}"
        "{% if add_generation_prompt %} assistant{% endif %}"
    )
    for task in (ASKED, Task(id="p", prompt="<s> how many", demonstration="three <end>")):
        assert render_demonstration(task, tokenizer, END) == render_demonstration(task, WITH_BOTH, END)
