"""The fewest replicas that serve the demand, checked by simulating the whole cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from experiments.plan.sample import Sample
from experiments.plan.targets import Target, failing, hopeless, lost


@dataclass(frozen=True, slots=True)
class CheckedCluster:
    """A cluster that was simulated under some seeds: what its requests got, all together, and the
    targets that they did not. ``whole``: none was left out because the others were too bad.
    ``requests``: how many come."""

    replicas: int
    samples: Sequence[Sample]
    failing: Sequence[str]
    whole: bool
    requests: int

    @property
    def meets(self) -> bool:
        """Whether every target is met."""
        return not self.failing


@dataclass
class Checks:
    """Clusters of one option, each size simulated once. ``runs`` yields the replicas of a size
    under one seed; ``requests`` counts what arrives there; ``alike``: seeds that send and do the
    same as the first."""

    runs: Callable[[int, int], object]
    requests: Callable[[int, int], int]
    alike: Callable[[int], bool]
    targets: Sequence[Target]
    seeds: Sequence[int]
    done: dict[int, CheckedCluster] = field(default_factory=dict)
    never: bool = False

    def of(self, replicas: int) -> CheckedCluster:
        """The cluster of this size."""
        if replicas not in self.done:
            self.done[replicas] = self._simulated(replicas)
        return self.done[replicas]

    def _simulated(self, replicas: int) -> CheckedCluster:
        seeds = [seed for seed in self.seeds if seed == self.seeds[0] or not self.alike(seed)]
        total = sum(self.requests(replicas, seed) for seed in seeds)
        samples: list[Sample] = []
        for seed in seeds:
            for sample in self.runs(replicas, seed):  # type: ignore[attr-defined]
                samples.append(sample)
                if lost(self.targets, samples, total):
                    names = failing(self.targets, samples) or ["too many already"]
                    return CheckedCluster(replicas, samples, names, False, total)
        return CheckedCluster(replicas, samples, failing(self.targets, samples), True, total)

    def fewest(self, begin: int, most: int) -> int | None:
        """The fewest replicas that meet every target, looked for from *begin*: at one replica fewer
        they do not. None where even *most* do not, or where no number can (``never``)."""
        at = min(max(begin, 1), most)
        if self.of(at).meets:
            high, low, by = at, at - 1, 1
            while low > 0 and self.of(low).meets:
                high, by = low, 2 * by
                low = max(low - by, 0)
        else:
            low, high, by = at, at + 1, 1
            while not self.of(min(high, most)).meets:
                tried = self.of(min(high, most))
                self.never = hopeless(self.targets, tried.samples, tried.requests)
                if high >= most or self.never:
                    return None
                low, by = high, 2 * by
                high += by
            high = min(high, most)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.of(middle).meets else (middle, high)
        return high

    def refused(self, replicas: int) -> tuple[int, Mapping[str, int]]:
        """Of the requests under the first seed: how many come, and how many the cluster refuses."""
        seed, found = self.seeds[0], Counter[str]()
        for sample in self.runs(replicas, seed):  # type: ignore[attr-defined]
            found.update(sample.refused)
        return self.requests(replicas, seed), found
