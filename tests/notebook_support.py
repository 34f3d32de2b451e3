"""Reads notebooks: their cells, their sections, and the solutions folded into them."""

import json
import re
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import pytest

FOLDER = Path(__file__).parent.parent / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
FOLDED = re.compile(r"<details><summary>(\w+)</summary>\n(.*?)</details>", re.DOTALL)


def cells_of(file: Path, kind: str) -> list[dict[str, Any]]:
    cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == kind]


def text_of(file: Path, kind: str = "markdown") -> str:
    return "\n\n".join("".join(cell["source"]) for cell in cells_of(file, kind))


def section(file: Path, heading: str) -> str:
    """What stands under a heading of the second level."""
    _, found, rest = text_of(file).partition(f"## {heading}\n")
    assert found, f"{file.name} has no section '{heading}'"
    return rest.partition("\n## ")[0]


def solutions(torch: bool) -> list[Any]:
    """The code of every solution that does, or does not, need torch."""
    found = []
    for file in NOTEBOOKS:
        inside = [text for _, text in FOLDED.findall(section(file, "Exercises"))]
        for place, text in enumerate(inside, start=1):
            codes = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
            name = f"{file.stem}-{place}"
            found += [pytest.param(c, id=name) for c in codes if ("import torch" in c) == torch]
    return found


def solve(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a solution by itself."""
    assert "assert " in code
    monkeypatch.chdir(FOLDER)
    with matplotlib.rc_context():
        exec(compile(code, "solution", "exec"), {})
    plt.close("all")
