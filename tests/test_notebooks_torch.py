"""The solutions that compute with the real model."""

import pytest
from notebook_support import solutions, solve

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("code", solutions(torch=True))
def test_a_solution_runs_by_itself_and_holds_what_it_says(code, monkeypatch):
    solve(code, monkeypatch)
