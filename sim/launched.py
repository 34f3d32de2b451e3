"""A request-level batch on its way: in which of its iterations who gets what."""

from __future__ import annotations

from dataclasses import dataclass, field

from sim.decision import Limit
from sim.request import Request


@dataclass(frozen=True, slots=True)
class Row:
    """A segment of the running batch, not yet recorded."""

    start: int
    end: int
    first: int
    context: int
    count: int
    decodes: int
    chunks: int
    useful: int
    stranded: int
    reading: int
    host: int
    admitted: int
    limit: Limit

    def goes_on(self, other: Row) -> bool:
        """Whether *other* only adds time to it."""
        mine = (self.decodes, self.useful, self.stranded, self.reading, self.admitted, self.limit)
        theirs = (
            other.decodes, other.useful, other.stranded, other.reading, other.admitted, other.limit
        )  # fmt: skip
        return mine == theirs and not self.chunks and not other.chunks


@dataclass(slots=True)
class Launched:
    """A batch on its way: its members in order, in which of its iterations each gets its first and
    its last token, how many iterations it lasts at least, and how many have ended.
    """

    members: list[Request]
    begins: list[int]
    ends: list[int]
    least: int
    blocks: int
    iterations: int = 0
    decoding: set[Request] = field(default_factory=set)
    gone: set[Request] = field(default_factory=set)  # answered, or given up by their clients

    @property
    def ended(self) -> int:
        """Members that have all their tokens, or were given up."""
        return sum(end <= self.iterations for end in self.ends) if self.iterations else 0

    @property
    def reading(self) -> int:
        """Members that have no token yet: rows still take theirs from the prompt."""
        now = self.iterations
        return sum(now < begin <= end for begin, end in zip(self.begins, self.ends, strict=True))

    @property
    def over(self) -> bool:
        """Whether nothing is left to compute."""
        return max(self.least, *self.ends) <= self.iterations

    @property
    def next_change(self) -> int:
        """The next iteration with which a member gets its first or its last token, or all end."""
        now = self.iterations
        upcoming = [end for end in self.ends if end > now]
        upcoming += [b for b, e in zip(self.begins, self.ends, strict=True) if now < b <= e]
        return min(upcoming, default=self.least)

    def made(self, place: int) -> int:
        """How many tokens the member at *place* has."""
        last = min(self.ends[place], self.iterations)
        return max(last - self.begins[place] + 1, 0)
