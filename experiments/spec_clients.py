"""The `clients:` of a spec: how long they wait for an answer, and whether they ask again."""

from __future__ import annotations

from typing import Annotated, ClassVar

from experiments.fields import Real, Seconds, SomeSeconds, Whole
from experiments.models import Model, Rule, Values


class Retries(Model):
    """A timed-out request is sent again at most `attempts` times, the n-th time `backoff_s` ×
    `factor`^(n − 1) after the time-out."""

    attempts: Annotated[int, Whole(high=1000)]
    backoff_s: Seconds = 0.0
    factor: Annotated[float, Real(above=0, high=1e6)] = 1.0


def _first_token_before_the_last(v: Values) -> str | None:
    first, whole = v["ttft_timeout_s"], v["timeout_s"]
    if first is not None and whole is not None and first > whole:
        return f"{first:.15g} comes after timeout_s ({whole:.15g}), so it never applies; lower it"
    return None


class Clients(Model):
    """All clients' patience, in seconds since arrival: for the first token, and for the whole
    answer. A request's own time-outs take the place of these."""

    ttft_timeout_s: SomeSeconds | None = None
    timeout_s: SomeSeconds | None = None
    retries: Retries | None = None

    other_names: ClassVar = {"timeout": "timeout_s", "ttft_timeout": "ttft_timeout_s"}
    rules: ClassVar = (
        Rule("ttft_timeout_s", ("ttft_timeout_s", "timeout_s"), _first_token_before_the_last),
    )
