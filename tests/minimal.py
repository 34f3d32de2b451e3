"""The oldest versions that pyproject.toml allows, as constraints for pip:
`pip install -c <(python tests/minimal.py) -e .` installs those."""

import re
import tomllib
from pathlib import Path

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]


def oldest(requirements: list[str]) -> list[str]:
    """`name==version` of every `name>=version`."""
    found = []
    for requirement in requirements:
        match = re.fullmatch(r"([A-Za-z0-9_.-]+)>=([0-9.]+)", requirement)
        assert match, f"{requirement}: give its oldest version as name>=version"
        found.append("{}=={}".format(*match.groups()))
    return found


if __name__ == "__main__":
    print(*oldest(PROJECT["dependencies"]), sep="\n")
