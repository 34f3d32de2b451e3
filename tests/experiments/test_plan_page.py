"""`plan.html`: nothing of the input becomes markup, and nothing is asked for outside."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from plan_support import unit_server

pytest.importorskip("jinja2", reason="needs jinja2: pip install 'itersim[report]'")

from experiments.load import spec_of
from experiments.output import OutputError
from experiments.plan.command import plan
from experiments.plan.page import NAME
from experiments.results import Results

EVIL = '</style></script><script>hacked=1</script><img src=x onerror="hacked=1">\'"&{{7*7}}p1001'


class Page(HTMLParser):
    """The elements of a page, their attributes, and the text that a reader sees."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def page(folder: Path, word: str) -> tuple[str, Page]:
    rows = [
        {"arrival_s": 4 * i, "prompt_tokens": 1, "output_tokens": 1, "tenant": word, "label": word}
        for i in range(40)
    ]
    targets = {"ttft_p90_s": 30, "by_tenant": {word: {"ttft_p90_s": 20}}}
    data: dict[str, Any] = unit_server({}, targets)
    data |= {"workload": {"requests": rows}, "description": word}
    plan(spec_of(data), folder, jobs=1)
    text = (folder / NAME).read_text(encoding="utf-8")
    return text, Page(text)


def asks_for_nothing(found: Page) -> None:
    for tag, attrs in found.elements:
        for name in ("src", "href", "srcset", "action", "data"):
            if name in attrs:
                assert str(attrs[name]).startswith(("data:", "#")), (tag, attrs)
        assert tag not in ("link", "iframe", "object", "base", "script")


def test_nothing_that_came_from_the_input_becomes_markup(tmp_path: Path) -> None:
    _, plain = page(tmp_path / "plain", "team")
    asks_for_nothing(plain)
    text, evil = page(tmp_path / "evil", EVIL)
    assert [tag for tag, _ in evil.elements] == [tag for tag, _ in plain.elements]
    assert not [name for _, attrs in evil.elements for name in attrs if name.startswith("on")]
    assert evil.text.count(EVIL) == plain.text.count("team") >= 2  # the description, the target
    assert "<script>hacked" not in text
    assert "49p1001" not in text


def test_a_report_of_a_plan_is_refused_and_says_where_to_look(tmp_path: Path) -> None:
    plan(spec_of(unit_server({"kind": "constant", "rate_per_s": 0.5, "requests": 30},
                             {"attainment": 0.9}) | {"slo": {"e2e_s": 3}}),
         tmp_path / "out", jobs=1)  # fmt: skip
    with pytest.raises(OutputError, match=r"is a plan, no run; see plan.html"):
        Results(tmp_path / "out")
    shown = Page((tmp_path / "out" / NAME).read_text(encoding="utf-8")).text
    assert "Dotted" not in shown and "all seeds together. Marks:" in shown


def test_a_day_and_what_was_done_to_a_trace_are_on_the_page_and_on_the_terminal(tmp_path) -> None:
    from plan_support import trace_plan

    stages = [{"rate_per_s": 1, "duration_s": 7200}, {"rate_per_s": 0.4, "duration_s": 3600}]
    data = trace_plan(tmp_path, {"ttft_p90_s": 30}, demand={"stages": stages, "above": "speed"})
    told = plan(spec_of(data), tmp_path / "out", jobs=1).text
    shown = Page((tmp_path / "out" / NAME).read_text(encoding="utf-8")).text
    for words in ("over the day: 3.0 GPU-hours", "the trace is run 2 × faster: its 598 s last 299"):
        assert words in told and words in shown
