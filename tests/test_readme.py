"""What the README says is so: its tables, its example, its files."""

from __future__ import annotations

import fnmatch
import re
from pathlib import Path

import pytest
import yaml

from calibrate.profile import list_profiles, load_profile
from experiments.load import spec_of
from experiments.models import Model
from experiments.policy_list import PARTS
from experiments.spec import Head, Slo
from experiments.spec_arrivals import ARRIVALS
from experiments.spec_order import ORDERS, OwnOrder
from experiments.spec_server import SCHEDULERS
from experiments.spec_workload import PREDICTORS, WORKLOADS, PrefixGroups
from workloads.formats import FormatName

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PROFILES = (ROOT / "docs" / "profiles.md").read_text(encoding="utf-8")


def test_two_lines_do_all_the_set_up() -> None:
    lines = re.findall(r"^python3 -m venv .*$", README, re.MULTILINE)
    assert len(lines) == 2
    assert "experiments/configs/lab.yaml" in lines[0]
    assert lines[1].endswith("pytest -n auto")


def test_the_example_is_a_valid_experiment() -> None:
    block = re.search(r"```yaml\n(.*?)```", README, re.DOTALL)
    assert block is not None
    spec = spec_of(yaml.safe_load(block.group(1)))
    assert list(spec.schedulers) == ["static", "orca", "sarathi"]


@pytest.mark.parametrize("name", list_profiles())
def test_the_profile_table_quotes_the_profiles_errors(name: str) -> None:
    row = next(line for line in PROFILES.splitlines() if line.startswith(f"| `{name}` |"))
    error = load_profile(name).error or {}
    for region, shown in zip(("decode", "prefill", "mixed"), row.split("|")[2:5], strict=True):
        found = error.get(region)
        if found and "mean" in found:
            assert f"{100 * found['mean']:.1f} % (worst {100 * found['max']:.0f} %)" in shown
        else:
            assert "%" not in shown


def test_the_readme_quotes_the_errors_of_every_family_of_profiles() -> None:
    rows = re.findall(r"^\| `([^`]+)` \((\d+)\) \|(.*)\|$", README, re.MULTILINE)
    assert sum(int(count) for _, count, _ in rows) == len(list_profiles())
    for family, count, cells in rows:
        names = fnmatch.filter(list_profiles(), family)
        assert len(names) == int(count), family
        errors = [load_profile(name).error for name in names]
        for region, shown in zip(("decode", "prefill", "mixed"), cells.split("|"), strict=False):
            means = [100 * e[region]["mean"] for e in errors if "mean" in (e.get(region) or {})]
            ends = (
                list(dict.fromkeys(f"{end:.1f}" for end in (min(means), max(means))))
                if means
                else []
            )
            assert re.findall(r"\d+\.\d", shown) == ends, (family, region)


def test_every_trace_format_is_named() -> None:
    for name in FormatName.__args__:
        assert f"`{name}`" in README


def test_what_it_links_to_and_shows_is_there() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).is_file(), target
    for target in re.findall(r"`((?:docs|results|experiments|tests)/[\w./-]+)`", README):
        assert (ROOT / target).exists(), target


def test_every_setting_is_explained() -> None:
    page = (ROOT / "docs" / "spec.md").read_text(encoding="utf-8")
    kinds: list[type[Model]] = [*SCHEDULERS, *ARRIVALS, *ORDERS, *PREDICTORS, *WORKLOADS]
    for model in (*kinds, Head, Slo, OwnOrder, PrefixGroups, *PARTS.values()):
        for key in set(model.model_fields) - {"description", "kind"}:
            assert re.search(rf"[`{{ ]{key}\b", page), f"{model.__name__}.{key}"
