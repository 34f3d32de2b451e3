"""Every relative link in every page and notebook leads to something that is there."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"!?\[[^\]]*\]\(\s*<?([^)<>\s]+)>?(?:\s+\"[^\"]*\")?\s*\)")
HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*$", re.MULTILINE)
CODE = re.compile(r"^(```|~~~).*?^\1\s*$|`[^`\n]+`", re.DOTALL | re.MULTILINE)
SKIPPED = {".venv", "build", "dist", "node_modules"}


def pages() -> list[Path]:
    """What git knows, or, outside a repository, what lies there."""
    try:
        words = ["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard", "*.md", "*.ipynb"]
        listed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        found = [ROOT / name for name in listed.splitlines()]
    except (OSError, subprocess.CalledProcessError):
        found = [*ROOT.rglob("*.md"), *ROOT.rglob("*.ipynb")]
    kept = [one for one in found if not SKIPPED & set(one.relative_to(ROOT).parts)]
    return sorted(one for one in kept if one.is_file())


PAGES = pages()


def text_of(page: Path) -> str:
    """The Markdown of a page, without code."""
    text = page.read_text(encoding="utf-8")
    if page.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        text = "\n\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
    return CODE.sub("", text)


def anchors(page: Path) -> set[str]:
    """The headings of a page as links call them."""
    text = page.read_text(encoding="utf-8")
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in HEADING.findall(text))
    return {heading.replace(" ", "-") for heading in plain}


def astray(page: Path) -> list[str]:
    """Links of *page* that lead nowhere."""
    found = []
    for target in LINK.findall(text_of(page)):
        if re.match(r"[a-z][a-z0-9+.-]*:", target):
            continue
        path, _, anchor = target.partition("#")
        there = page if not path else page.parent / path
        lost = anchor and there.suffix == ".md" and there.is_file() and anchor not in anchors(there)
        if not there.exists() or lost:
            found.append(target)
    return found


def test_there_are_pages_with_links() -> None:
    names = {page.relative_to(ROOT).as_posix() for page in PAGES}
    assert {"README.md", "docs/README.md", "CONTRIBUTING.md", "notebooks/README.md"} <= names
    assert any(name.endswith(".ipynb") for name in names)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_link_leads_somewhere(page: Path) -> None:
    assert astray(page) == []


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    page = tmp_path / "a.md"
    page.write_text(
        "# One, two\n[x](b.md) ![y](c.png) [z](#one-two) [w](#three) [v](https://e.org/q)\n"
        "`[not](a.link)`\n```\n[nor](this)\n```\n"
    )
    assert astray(page) == ["b.md", "c.png", "#three"]


def test_the_index_names_every_page_of_docs() -> None:
    folder = ROOT / "docs"
    named = set(LINK.findall((folder / "README.md").read_text(encoding="utf-8")))
    assert {one.name for one in folder.glob("*.md")} - {"README.md"} <= named


def test_contributing_names_what_is_there() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    paths = re.findall(r"`((?:sim|experiments|calibrate|workloads|docs|tests)/[\w./*-]+)`", text)
    assert len(paths) > 10
    for path in paths:
        assert list(ROOT.glob(path)), path
