"""What is told of a plan, once: the terminal prints it and the page shows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.grid import Grid, rendered
from experiments.plan.answer import Answer
from experiments.plan.flags import Flag, command_of, flags_of
from experiments.plan.front import Row, day_of, is_priced, price_of
from experiments.plan.option import option_name
from experiments.plan.streams import Streams
from experiments.plan.tables import day_text, fresh_text, headline, reasons, table, unpriced
from experiments.plan.targets import Target
from experiments.spec import Spec
from experiments.spec_plan import Plan


@dataclass(frozen=True, slots=True)
class Story:
    """``verdict``: the recommendation, or why there is none (``recommends``). ``fresh``, ``day``
    and ``command`` are empty where there is nothing to say."""

    read: tuple[str, ...]
    table: Grid
    recommends: bool
    verdict: str
    fresh: str
    day: str
    flags: tuple[Flag, ...]
    command: str
    notes: tuple[str, ...]
    again: str = ""

    def texts(self) -> list[str]:
        """The paragraphs of the terminal."""
        notes = "\n".join(f"note: {note}" for note in self.notes)
        said = (
            rendered([self.table]),
            self.verdict,
            self.fresh,
            self.day,
            self._settings,
            notes,
            self.again,
        )
        return [*self.read, *filter(None, said)]

    @property
    def _settings(self) -> str:
        """The command, and each of its flags with what it was derived from."""
        width = max((len(flag.text) for flag in self.flags), default=0)
        lines = [
            f"  {flag.text or '(no flag)':{width}}  from {flag.derived_from}" for flag in self.flags
        ]
        return "\n".join([*([self.command] if self.command else []), *lines])


def story_of(
    spec: Spec, said: Plan, rows: Sequence[Row], targets: Sequence[Target], streams: Streams
) -> Story:
    """What is to be told of these answers."""
    priced = is_priced(rows)
    chosen = next((row for row in rows if row.recommended), None)
    notes = [streams.told, *reasons(rows), unpriced(said, rows)]
    if chosen is None:
        flags: list[Flag] = []
        fresh = day = command = ""
        verdict = "nothing is recommended: no option that meets the targets has a price"
        if not any(row.answered for row in rows):
            asked = ", ".join(f"{one.name} {one.limit:g}" for one in targets)
            verdict = f"no option meets {asked} at {float(streams.rate):.4g} requests/s"
    else:
        flags = _flags(spec, chosen)
        command = command_of(flags, chosen.answer)
        verdict, fresh = headline(chosen, streams.rate, priced), fresh_text(chosen)
        day = day_text(day_of(said, chosen), chosen, price_of(said, chosen.answer.device))
        if chosen.answer.error is None:
            notes.append("how far its step times may be off is not known: no replicas in brackets")
    return Story(
        tuple(streams.said),
        table(spec.name, rows, targets, priced),
        chosen is not None,
        verdict,
        fresh,
        day,
        tuple(flags),
        command,
        tuple(filter(None, notes)),
    )


def _flags(spec: Spec, chosen: Row) -> list[Flag]:
    """Of the recommended option."""
    return flags_of(spec_of_option(spec, chosen.answer), chosen.answer)


def spec_of_option(spec: Spec, answer: Answer) -> Spec:
    """What the option that was answered is simulated from."""
    for variant in spec.variants():
        if option_name(answer.scheduler, variant) == answer.option:
            return variant.spec
    raise AssertionError(f"no option is called {answer.option}")
