"""Broken input for `benchmarks.fuzz`: valid input mutated by hypothesis, and random nested data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from hypothesis import strategies as st

from benchmarks.fuzz_targets import Target

TOKENS = (
    *("", "0", "-1", "-0", "1e999", "1e-999", "nan", "NaN", ".nan", "inf", "-inf", ".inf", "1e308"),
    *(
        "9" * 25,
        "9" * 5000,
        "9223372036854775808",
        "1e18",
        "0x10",
        "1_000",
        "1.5",
        "٣",
        "½",
        "null",
    ),
    *(
        "true",
        "~",
        "[]",
        "{}",
        "[[[[",
        "}}}}",
        '"',
        "'",
        ",",
        ",,,,",
        ";",
        "\t",
        "\r",
        "\n",
        "\r\n",
    ),
    *("\0", "\ufeff", "\ud7ff", "\U0010ffff", "\x1b[31m", "<<: *a", "&a [*a]", "*a", "&a ", "- "),
    *(
        "!!python/object/apply:os.system [true]",
        "!!binary aGk=",
        "!!set {a}",
        "? ",
        "---\n",
        "%YAML",
    ),
    *("../../etc/passwd", "/dev/zero", "con", "{{7*7}}", "${HOME}", "os:system", "a" * 3000, ": "),
    *("2023-13-45 99:99:99", "9999-12-31 23:59:59.9999999+23:59", "0001-01-01", "1970-01-01"),
)
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2**63, 10**400, 0.5, -0.0, 1e308, 5e-324, float("inf")),
    *(float("nan"), float("-inf"), "", "x", "1", "\0", "../..", "a" * 3000, [], {}, [[]], [None]),
    *({"kind": None}, {"kind": "x"}, {"kind": []}, {1: 2}, ["x", 1, {}], "os:system", "10%", "..."),
)
BROKEN = (
    b"",
    b"\n",
    b"\xff\xfe",
    b"\x80",
    b"\0" * 9,
    b'"',
    b"{",
    b"[" * 5000,
    b"a,a\n1,2\n",
    b"PAR1",
)
"""Files that are nothing."""


@st.composite
def mutated_text(draw: Callable[[Any], Any], seeds: Sequence[str]) -> bytes:
    """One of *seeds* with a few edits, now and then of single bytes."""
    text: str = draw(st.sampled_from(seeds))
    for _ in range(draw(st.integers(1, 4))):
        begin = draw(st.integers(0, len(text)))
        end = min(len(text), begin + draw(st.sampled_from((0, 1, 2, 5, 20, 200))))
        what = draw(st.integers(0, 5))
        piece = text[begin:end]
        if what <= 2:
            piece = draw(st.sampled_from(TOKENS))
        elif what == 3:
            piece = piece * draw(st.integers(2, 40))
        elif what == 4:
            piece = ""
        text = text[:begin] + piece + ("" if what == 5 else text[end:])
    raw = text.encode("utf-8", "surrogatepass")
    if draw(st.integers(0, 9)) == 0:
        place = draw(st.integers(0, len(raw)))
        raw = raw[:place] + draw(st.binary(min_size=1, max_size=4)) + raw[place + 1 :]
    return raw


@st.composite
def mutated_bytes(draw: Callable[[Any], Any], seeds: Sequence[bytes]) -> bytes:
    """One of *seeds* with a few bytes exchanged, or cut off."""
    raw = bytearray(draw(st.sampled_from(seeds)))
    for _ in range(draw(st.integers(1, 6))):
        raw[draw(st.integers(0, len(raw) - 1))] = draw(st.integers(0, 255))
    return bytes(raw[: draw(st.just(len(raw)) | st.integers(0, len(raw)))])


@st.composite
def mutated_data(draw: Callable[[Any], Any], seeds: Sequence[Any]) -> Any:
    """One of *seeds* with some values, keys and parts exchanged."""
    data = copied(draw(st.sampled_from(seeds)))
    for _ in range(draw(st.integers(1, 3))):
        places = list(_places(data))
        if not places:
            return data
        holder, key = draw(st.sampled_from(places))
        what = draw(st.integers(0, 5))
        if what <= 2:
            holder[key] = copied(draw(st.sampled_from(VALUES)))
        elif what == 3:
            other, inner = draw(st.sampled_from(places))
            holder[key] = copied(other[inner])
        elif what == 4:
            holder.pop(key)
        elif isinstance(holder, dict):
            words = [k for h, k in places if isinstance(h, dict)]
            holder[draw(st.sampled_from([*words, "", "x", 1, None, "kind"]))] = holder[key]
    return data


def random_data(seeds: Sequence[Any]) -> st.SearchStrategy[Any]:
    """Nested data out of the words that specs have."""
    places = [(h, k) for one in seeds for h, k in _places(one)]
    keys = sorted({k for h, k in places if isinstance(h, dict) and isinstance(k, str)})
    leaves = [h[k] for h, k in places if not isinstance(h[k], dict | list)]
    some = sorted({value for value in leaves if isinstance(value, str)})
    leaf = st.sampled_from(VALUES) | st.sampled_from(some) | st.integers() | st.text(max_size=5)
    inner = st.recursive(
        leaf,
        lambda part: (
            st.lists(part, max_size=3)
            | st.dictionaries(st.sampled_from(keys), part, max_size=4)
            | st.fixed_dictionaries({"kind": st.sampled_from(some)}, optional={"value": part})
        ),
        max_leaves=12,
    )
    top = ("name", "workload", "step_time", "server", "schedulers", "slo", "sweep", "plan")
    more = ("seeds", "figures", "clients", "cluster", "horizon_s", "warmup")
    return st.fixed_dictionaries({}, optional=dict.fromkeys((*top, *more), inner))


def copied(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: copied(value) for key, value in data.items()}
    return [copied(value) for value in data] if isinstance(data, list) else data


def _places(data: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key) in *data*."""
    pairs = data.items() if isinstance(data, dict) else enumerate(data)
    for key, value in pairs if isinstance(data, dict | list) else ():
        yield data, key
        if isinstance(value, dict | list):
            yield from _places(value)


def inputs(target: Target) -> st.SearchStrategy[Any]:
    """What a target is fed."""
    if target.kind == "text":
        return mutated_text(target.seeds)
    if target.kind == "binary":
        return mutated_bytes(target.seeds)
    return random_data(target.seeds) if target.kind == "random" else mutated_data(target.seeds)
