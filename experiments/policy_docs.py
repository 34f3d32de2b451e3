"""`python -m experiments.policy_docs`: the tables of docs/options.md, from the code."""

from __future__ import annotations

import sys

from experiments.kept_page import KeptPage, table
from experiments.policies import GROUPS, Entry, Group
from experiments.policy_list import default_of, model_of


def written() -> str:
    """A section for every group of policies and options."""
    return "\n\n".join(map(_section, GROUPS))


def _section(group: Group) -> str:
    rows = [[f"`{e.name}`", e.says, e.source, e.mirrors] for e in group.entries]
    parts = [
        f"## {group.title}",
        f"In a spec: `{group.where}`",
        table(["name", "what it does", "source", "who does so"], rows),
    ]
    keys = [row for entry in group.entries for row in _keys(group, entry)]
    if keys:
        parts.append(table(["key", "of", "meaning", "default"], keys))
    return "\n\n".join(parts)


def _keys(group: Group, entry: Entry) -> list[list[str]]:
    model = model_of(group, entry)
    return [
        [f"`{key}`", f"`{entry.name}`", meaning, default_of(model, key)]
        for key, meaning in entry.keys.items()
    ]


PAGE = KeptPage("options.md", "experiments.policy_docs", written)

if __name__ == "__main__":
    sys.exit(PAGE.main())
