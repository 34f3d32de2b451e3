"""The course: what every notebook must have, and that the solutions of its exercises are right.

`pytest --nbmake notebooks` runs the notebooks themselves; test_links.py follows their links.
"""

import re

import pytest
from notebook_support import (
    FOLDED,
    FOLDER,
    NOTEBOOKS,
    cells_of,
    section,
    solutions,
    solve,
    text_of,
)

README = FOLDER / "README.md"
HEADINGS = ("Predict", "What people get wrong", "Check yourself", "Exercises", "Sources")
LINK = re.compile(r"\]\(([^)#\s]+)\)")
each = pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)


def test_the_course_is_numbered_without_a_gap():
    numbers = [int(file.name[:2]) for file in NOTEBOOKS]
    assert numbers == list(range(1, len(numbers) + 1))
    assert numbers


@each
def test_a_notebook_is_committed_without_outputs(file):
    for cell in cells_of(file, "code"):
        assert cell["outputs"] == []
        assert cell["execution_count"] is None


@each
def test_a_notebook_asks_predicts_measures_checks_and_ends_with_exercises(file):
    text, code = text_of(file), text_of(file, "code")
    assert re.search(rf"^# {int(file.name[:2])} · ", text)
    assert "**Question.**" in text
    places = [text.index(f"\n## {heading}\n") for heading in HEADINGS]
    assert places == sorted(places)
    for name in re.findall(r"^(my_\w+(?:, my_\w+)*) = .*None", code, re.MULTILINE):
        for one in name.split(", "):  # what was predicted is compared with what was measured
            assert len(re.findall(rf"\b{one}\b", code)) >= 2, f"{one} is never looked at again"
    assert re.search(r"^my_\w+", code, re.MULTILINE)
    assert "assert " in code


@each
def test_answers_and_solutions_are_folded(file):
    checks, exercises = section(file, "Check yourself"), section(file, "Exercises")
    answers, solutions = FOLDED.findall(checks), FOLDED.findall(exercises)
    assert {kind for kind, _ in answers} == {"Answer"}
    assert {kind for kind, _ in solutions} == {"Solution"}
    assert 3 <= len(answers) <= 5
    assert 2 <= len(solutions) <= 3
    text = text_of(file)
    assert text.count("<details>") == text.count("</details>") == len(answers) + len(solutions)
    for _, inside in (*answers, *solutions):
        assert inside.startswith("\n"), "Markdown inside <details> needs an empty line before it"


def test_the_readme_lists_every_notebook():
    assert {t for t in LINK.findall(README.read_text(encoding="utf-8")) if t.endswith("ipynb")} == {
        file.name for file in NOTEBOOKS
    }


@pytest.mark.parametrize("code", solutions(torch=False))
def test_a_solution_runs_by_itself_and_holds_what_it_says(code, monkeypatch):
    solve(code, monkeypatch)
