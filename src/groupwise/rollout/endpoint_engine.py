"""Samples from a model behind an OpenAI-compatible server: for evaluation, never for training.

Chat turns go to /chat/completions, and the server applies its model's template. Plain text goes to /completions, where
it is continued as it is, as the engine in this process does; a server that offers chat alone gets it as one user turn
(`as_chat`). Every completion is a request of its own, with its own seed: asking for n at once would give them one seed,
and many servers refuse n. Whether a seed makes a completion repeatable is up to the server.

A completion has text and a reason to stop, and neither token ids nor log-probabilities. One that the server did not
deliver is ABORTED with its text empty: it is unscored later, and never a wrong answer. Of a model that thinks in a
field of its own only the answer is seen.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Any

from groupwise.errors import EngineError
from groupwise.rollout.engine import Progress, Sampling, group_sizes
from groupwise.sandbox.http_json import HttpFailure, HttpLimits, is_http_url, post_json
from groupwise.types import Completion, Message, Prompt, Stop

MAX_REPLY_BYTES = 16 << 20
"""Larger than any completion; thinking aloud comes with it."""
_STOPS = {"length": Stop.LENGTH, "content_filter": Stop.ABORTED}
"""What finish_reason means; any other is the model's own end."""
_HOPELESS = {
    401: "set the environment variable {key} to a valid API key, or name another with --key-variable",
    403: "the key in the environment variable {key} may not use this model",
    404: "check the address (up to /v1) and the model's name at the server; plain text prompts go to /completions: "
    "where the server has chat only, ask with --as-chat",
}
"""Refusals that no other request will escape."""
_FAILURES_AT_START = 8
"""Failed requests without a single success after which the rest is not tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where the model is, and how it is asked.

    Example:
        Endpoint(url="http://localhost:8000/v1", model="Qwen/Qwen3-8B")
    """

    url: str
    """The address up to /v1."""
    model: str
    """Its name at the server."""
    key_variable: str = "OPENAI_API_KEY"
    """The environment variable with the API key; one that is not set sends none."""
    as_chat: bool = False
    """Plain text prompts as one user turn instead of a text to continue."""
    num_requests: int = 8
    """Requests at once, 1 or more."""
    time_limit_s: float = 120.0
    """Seconds for one attempt, from connecting to the last byte."""
    num_retries: int = 3
    """Further attempts after one that failed in a way that may pass."""
    retry_wait_s: float = 1.0
    """Seconds before the first of them; doubled each time."""

    def __post_init__(self) -> None:
        if not is_http_url(self.url):
            raise EngineError(f"endpoint {self.url!r} cannot be used; give http://HOST/v1 or https://HOST/v1")
        if not self.model or self.num_requests < 1 or self.time_limit_s <= 0 or self.num_retries < 0:
            raise EngineError(
                f"endpoint: model {self.model!r}, {self.num_requests} requests at once, time limit "
                f"{self.time_limit_s:g} s, {self.num_retries} retries cannot be used; give a name, 1 or more requests, "
                "seconds above 0 and 0 or more retries"
            )


class EndpointEngine:
    """An `Engine` whose prompts are looked up by task id, because a server takes text and not token ids.

    Example:
        engine = EndpointEngine(Endpoint(url="http://localhost:8000/v1", model="m"), {"q1": "2 + 2 = "})
        engine.generate([Prompt(task_id="q1", token_ids=())], 4, Sampling(max_tokens=16), seed=0)
    """

    def __init__(self, endpoint: Endpoint, prompts: Mapping[str, str | Sequence[Message]]) -> None:
        self.endpoint = endpoint
        self.notes: list[str] = []
        """What the server did not take, one sentence each."""
        self.num_aborted = 0
        """Completions that did not arrive, over all calls."""
        self.failure = ""
        """Why the last of them did not."""
        self.num_prompt_tokens = 0
        """By the server's own count, over all calls; 0 where it gives none."""
        self.num_completion_tokens = 0
        self._prompts = prompts
        self._limits = HttpLimits(
            time_limit_s=endpoint.time_limit_s,
            max_bytes=MAX_REPLY_BYTES,
            num_retries=endpoint.num_retries,
            retry_wait_s=endpoint.retry_wait_s,
        )
        self._limit_name, self._takes_seed = "max_tokens", True
        self._num_arrived = 0
        self._lock = threading.Lock()

    def set_policy_version(self, version: int) -> None:
        """Nothing: the weights are the server's."""

    def generate(
        self,
        prompts: Sequence[Prompt],
        group_size: int | Sequence[int],
        sampling: Sampling,
        *,
        seed: int,
        progress: Progress | None = None,
    ) -> list[list[Completion]]:
        """See Engine; the same seed gives the same completions where the server keeps to it.

        Raises:
            EngineError: if the server refuses what every request has in common, or no completion arrives at all.
        """
        sizes = group_sizes(len(prompts), group_size)
        places = [(p, c) for p, size in enumerate(sizes) for c in range(size)]
        found: dict[tuple[int, int], Completion] = {}
        threads = ThreadPoolExecutor(self.endpoint.num_requests)
        try:
            futures = {threads.submit(self._complete, prompts[p].task_id, c, sampling, seed): (p, c) for p, c in places}
            for done, future in enumerate(as_completed(futures), start=1):
                found[futures[future]] = future.result()
                self._refuse_nothing_but_failures(done, len(places))
                if progress is not None:
                    progress(done, len(places))
        finally:
            threads.shutdown(wait=False, cancel_futures=True)  # after an error, what is under way is not waited for
        return [[found[p, c] for c in range(size)] for p, size in enumerate(sizes)]

    def _refuse_nothing_but_failures(self, done: int, total: int) -> None:
        if not self._num_arrived and done >= min(total, _FAILURES_AT_START):
            raise EngineError(
                f"{self.endpoint.url} gave no completion in {done} requests to model {self.endpoint.model!r}: "
                f"{self.failure}. Check that the server runs, and its address and model name; "
                "a slow server needs a longer --time-limit"
            )

    def _complete(self, task_id: str, number: int, sampling: Sampling, seed: int) -> Completion:
        try:
            reply = self._ask(self._prompts[task_id], sampling, _seed_of(seed, task_id, number))
        except HttpFailure as failure:
            self._refuse_hopeless(failure)
            return self._aborted(_shown(failure))
        try:
            choice = reply["choices"][0]
            text = choice["message"]["content"] if "message" in choice else choice["text"]
            reason = choice.get("finish_reason")
        except (KeyError, IndexError, TypeError, AttributeError):
            return self._aborted("the reply has no text at choices[0]")
        stop = _STOPS.get(reason, Stop.END) if isinstance(reason, str) else Stop.END
        if stop is Stop.ABORTED or not isinstance(text, str | None):
            return self._aborted(f"finish_reason {reason!r}")
        num_tokens = self._count(reply.get("usage"))
        return Completion(text=_cut(text or "", sampling.stop), stop=stop, reported_tokens=num_tokens or None)

    def _ask(self, prompt: str | Sequence[Message], sampling: Sampling, seed: int) -> Any:
        """The reply. What the server does not know is left out or named otherwise, for this request and all later."""
        is_text = isinstance(prompt, str) and not self.endpoint.as_chat
        turns = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else [dict(turn) for turn in prompt]
        asked: dict[str, Any] = {"prompt": prompt} if is_text else {"messages": turns}
        url = f"{self.endpoint.url.rstrip('/')}/{'completions' if is_text else 'chat/completions'}"
        while True:
            body = {"model": self.endpoint.model, **asked, **self._settings(sampling, seed)}
            try:
                return post_json(url, body, key_variable=self.endpoint.key_variable, limits=self._limits)
            except HttpFailure as failure:
                if not self._adapted(body, failure):
                    raise

    def _settings(self, sampling: Sampling, seed: int) -> dict[str, Any]:
        settings: dict[str, Any] = {"temperature": sampling.temperature, self._limit_name: sampling.max_tokens}
        if self._takes_seed:
            settings["seed"] = seed
        if sampling.top_p < 1:
            settings["top_p"] = sampling.top_p
        if sampling.top_k:
            settings["top_k"] = sampling.top_k
        if sampling.stop:
            settings["stop"] = list(sampling.stop)
        return settings

    def _adapted(self, body: Mapping[str, Any], failure: HttpFailure) -> bool:
        """Whether the request is worth repeating without what its refusal complains about."""
        if failure.status not in (400, 422):
            return False
        with self._lock:
            if "max_completion_tokens" in failure.body and "max_tokens" in body:
                self._limit_name = "max_completion_tokens"
                return True
            if "seed" in failure.body and "seed" in body:
                if self._takes_seed:
                    self.notes.append("The server takes no seed: sampled completions differ from call to call.")
                self._takes_seed = False
                return True
        return False

    def _refuse_hopeless(self, failure: HttpFailure) -> None:
        status = failure.status or 0
        advice = _HOPELESS.get(status, "")
        if 300 <= status < 400:
            advice = "it is a redirect, which is not followed: give the address that it leads to"
        if advice:
            advice = advice.format(key=self.endpoint.key_variable)
            raise EngineError(f"{self.endpoint.url} refuses model {self.endpoint.model!r}: {_shown(failure)}; {advice}")

    def _aborted(self, why: str) -> Completion:
        with self._lock:
            self.num_aborted += 1
            self.failure = why
        return Completion(text="", stop=Stop.ABORTED)

    def _count(self, usage: Any) -> int:
        """Adds up what the server counts of one reply; returns the completion's tokens, 0 where it does not say."""
        counts = usage if isinstance(usage, dict) else {}
        num_tokens = _number(counts.get("completion_tokens"))
        with self._lock:
            self._num_arrived += 1
            self.num_prompt_tokens += _number(counts.get("prompt_tokens"))
            self.num_completion_tokens += num_tokens
        return num_tokens


def _seed_of(seed: int, task_id: str, number: int) -> int:
    """31 bits, which every server takes; the same whatever else is sampled in the call."""
    digest = hashlib.sha256(f"{seed} {number} {task_id}".encode("utf-8", "replace")).digest()
    return int.from_bytes(digest[:4], "big") >> 1


def _cut(text: str, stops: Sequence[str]) -> str:
    """Before the first stop text, for servers that keep it or pass it over."""
    return text[: min((text.index(stop) for stop in stops if stop in text), default=len(text))]


def _number(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 0


def _shown(failure: HttpFailure) -> str:
    body = " ".join(failure.body.split())[:200]
    return f"{failure} ({body})" if body else str(failure)
