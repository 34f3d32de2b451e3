"""Pages of the documentation that are kept in step with the code: what stands between two marks is
written anew, what stands around it is written by hand."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).parent.parent / "docs"
END = "<!-- end of what is written -->"


@dataclass(frozen=True, slots=True)
class KeptPage:
    """*page* of the folder `docs`, which `python -m` *module* writes: between its marks stands what
    *written* says."""

    page: str
    module: str
    written: Callable[[], str]

    @property
    def path(self) -> Path:
        return DOCS / self.page

    @property
    def begin(self) -> str:
        return f"<!-- written by: python -m {self.module} -->"

    def renewed(self, text: str) -> str:
        """*text* with what stands between the marks written anew; ValueError without marks."""
        before, begin, rest = text.partition(self.begin)
        _, end, after = rest.partition(END)
        if not begin or not end:
            raise ValueError(f"there must be a line {self.begin!r} and, after it, one {END!r}")
        return f"{before}{self.begin}\n\n{self.written()}\n\n{END}{after}"

    def main(self, arguments: Sequence[str] | None = None) -> int:
        """Write the page; 0 done, 1 with --check where it is not as the code says, 2 no marks."""
        parser = argparse.ArgumentParser(
            prog=f"python -m {self.module}",
            description=f"Write what the code says into docs/{self.page}, between its marks.",
        )
        parser.add_argument(
            "file", type=Path, nargs="?", default=self.path, help="(default: %(default)s)"
        )
        parser.add_argument(
            "--check", action="store_true", help="write nothing, say whether it is new"
        )
        given = parser.parse_args(arguments)
        try:
            old = given.file.read_text(encoding="utf-8")
            new = self.renewed(old)
        except (OSError, ValueError) as error:
            print(f"{given.file}: {error}", file=sys.stderr)
            return 2
        if given.check:
            return int(old != new)
        if old != new:
            given.file.write_text(new, encoding="utf-8")
        return 0


def row(cells: Sequence[str]) -> str:
    """A row of a table in Markdown."""
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    return "\n".join([row(heads), row(["---"] * len(heads)), *map(row, rows)])
