"""What is measured: the composition of one step, before anyone runs it. Knows no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Region = Literal["decode", "prefill", "mixed", "padded_decode", "padded_prefill"]

REGIONS: tuple[Region, ...] = get_args(Region)
"""Kinds of steps. The padded ones are what `static` runs: rectangles, on a path of their own."""

PADDED: tuple[Region, ...] = ("padded_decode", "padded_prefill")


@dataclass(frozen=True, slots=True)
class Point:
    """One step: ``pasts`` are the KV entries each decode reads, ``chunks`` the (new tokens, tokens
    already computed) of each prefill chunk. Padded rows all have what the longest has.

    Raises ValueError for a composition that its region does not have.
    """

    region: Region
    pasts: tuple[int, ...] = ()
    chunks: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        if any(past < 1 for past in self.pasts):
            raise ValueError(f"{self}: a decode reads at least the entry of one token")
        if any(new < 1 or past < 0 for new, past in self.chunks):
            raise ValueError(f"{self}: a chunk has new tokens, and no negative past")
        has = (bool(self.pasts), bool(self.chunks))
        decodes, prefills = "prefill" not in self.region, "decode" not in self.region
        if has != (decodes, prefills):
            raise ValueError(f"{self}: has not what a {self.region} step has")
        if self.region in PADDED and len({*self.pasts, *self.chunks}) > 1:
            raise ValueError(f"{self}: the rows of a padded step are alike")

    @property
    def rows(self) -> int:
        """Sequences in the step."""
        return len(self.pasts) + len(self.chunks)

    @property
    def tokens(self) -> int:
        """Tokens computed in the step."""
        return len(self.pasts) + sum(new for new, _ in self.chunks)

    @property
    def pairs(self) -> int:
        """(token, earlier token or itself) pairs that attention multiplies, causally."""
        decodes = sum(past + 1 for past in self.pasts)
        return decodes + sum(new * past + new * (new + 1) // 2 for new, past in self.chunks)

    @property
    def longest(self) -> int:
        """Entries of its longest sequence after the step."""
        lengths = [past + 1 for past in self.pasts] + [new + past for new, past in self.chunks]
        return max(lengths)

    def shape(self) -> tuple[int, int, int, int, int, int]:
        """The six numbers of `sim.steptime`."""
        return (
            len(self.pasts),
            sum(self.pasts),
            len(self.chunks),
            sum(new for new, _ in self.chunks),
            sum(new * past for new, past in self.chunks),
            sum(new * new for new, _ in self.chunks),
        )

    def blocks(self, block_size: int) -> int:
        """KV blocks that its sequences hold after the step."""
        lengths = [past + 1 for past in self.pasts] + [new + past for new, past in self.chunks]
        return sum(-(-length // block_size) for length in lengths)

    def text(self) -> str:
        """Its name in files: ``decode d12.40`` or ``mixed d300 c64+0.32+128`` (new+past)."""
        parts = [str(self.region)]
        if self.region in PADDED:
            one = f"{self.pasts[0]}" if self.pasts else "{}+{}".format(*self.chunks[0])
            return f"{self.region} {self.rows}x{one}"
        if self.pasts:
            parts.append("d" + ".".join(map(str, self.pasts)))
        if self.chunks:
            parts.append("c" + ".".join(f"{new}+{past}" for new, past in self.chunks))
        return " ".join(parts)


def is_padded(region: str) -> bool:
    """Whether steps of this region run on the rectangular path."""
    return region in PADDED
