"""Pages that the code writes are what the code says, and say all of it."""

from __future__ import annotations

from typing import get_args

import pytest

from experiments import metric_docs, policy_docs, trace_docs
from experiments.kept_page import KeptPage
from experiments.policies import GROUPS
from workloads.formats import PLAIN, FormatName

PAGES = (metric_docs.PAGE, policy_docs.PAGE, trace_docs.PAGE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.page)
def test_a_page_is_what_the_code_says(page: KeptPage) -> None:
    assert page.main(["--check"]) == 0, f"run: python -m {page.module}"


def test_every_policy_and_every_key_of_it_is_there() -> None:
    text = policy_docs.PAGE.path.read_text(encoding="utf-8")
    for group in GROUPS:
        for entry in group.entries:
            assert f"| `{entry.name}` | {entry.says}" in text.replace("\\|", "|")
            assert all(f"| `{key}` | `{entry.name}` |" in text for key in entry.keys)


def test_every_format_is_there_with_its_unit() -> None:
    rows = [line.split(" | ") for line in trace_docs.written().splitlines()]
    units = {row[0].strip("|` "): row[2] for row in rows if len(row) == 7}
    assert set(get_args(FormatName)) - set(PLAIN) <= set(units)
    assert (units["mooncake"], units["bailian"], units["azure"]) == ("ms", "s", "date and time")
