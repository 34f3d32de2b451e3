"""What a person reads first: schedulers side by side, ratios, and one sentence of cause."""

from __future__ import annotations

import math
from collections.abc import Mapping

from experiments.grid import Grid, rendered
from experiments.intervals import Estimate
from experiments.table_rows import CLASSES, Seeds, classes, estimated, table_rows, unsure

ABREAST, ABREAST_PAIRED = 3, 2  # schedulers beside the first in one table; with differences
NAMED = 3  # schedulers whose waits a sentence names one by one
UNSURE, SATURATED = "*", "†"
WORTH_TELLING = 0.01  # a difference below one in a hundred is none


def comparison(cells: Mapping[str, Seeds], title: str, backlog: bool = False) -> str:
    """Tables: a row per metric, a column per scheduler, ratios to the first; a few side by side.

    In an endless *backlog* every request arrives at 0: rows that count from arrival are left out.
    """
    base, *others = cells
    abreast = ABREAST_PAIRED if len(cells[base]) > 1 else ABREAST
    groups = [others[i : i + abreast] for i in range(0, len(others), abreast)] or [[]]
    more = f"{title} (continued)"
    tables = [
        compared(
            {name: cells[name] for name in (base, *group)}, title if not place else more, backlog
        )
        for place, group in enumerate(groups)
    ]
    return "\n\n".join(rendered([table]) for table in tables)


def compared(cells: Mapping[str, Seeds], title: str, backlog: bool = False) -> Grid:
    """One table of all of *cells*: values, ratios to the first, with several seeds differences."""
    base, *others = cells
    paired = len(cells[base]) > 1
    head = ["", base]
    for name in others:
        head += [name, f"÷ {base}", *([f"{name} − {base}"] if paired else ())]
    rows = []
    for row in table_rows(cells, backlog):
        line = [row.label]
        for name in cells:
            marks = UNSURE * (name in row.unsure) + SATURATED * (name in row.saturated)
            line.append(shown_estimate(row.estimates[name], row.scale) + marks)
            if name != base:
                line.append(_ratio(row.estimates[name], row.estimates[base]))
                if paired:
                    line.append(shown_difference(row.differences[name], row.scale))
        rows.append(tuple(line))
    return Grid(title, tuple(head), tuple(rows))


def shown_estimate(value: Estimate | None, scale: float = 1.0) -> str:
    """A mean, and its interval if it has one."""
    if value is None:
        return "–"
    text = number(value.mean * scale)
    if not value.half_width:
        return text
    if value.resampled:
        return f"{text} [{number(value.low * scale)}, {number(value.high * scale)}]"
    return f"{text} ±{number(value.half_width * scale)}"


def shown_difference(value: Estimate | None, scale: float = 1.0) -> str:
    """A difference with its sign and the ends of its interval."""
    if value is None:
        return "–"
    low, mean, high = (number(x * scale) for x in (value.low, value.mean, value.high))
    return f"{'+' if value.mean > 0 else ''}{mean} [{low}, {high}]" if value.half_width else mean


def _ratio(value: Estimate | None, base: Estimate | None) -> str:
    """How many times the base a value is."""
    if value is None or base is None or not base.mean:
        return "–"
    return f"{value.mean / base.mean:.3g}×"


def number(value: float) -> str:
    """A value with about four digits, thousands separated; whole numbers stay whole."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    if value == round(value) and abs(value) < 1e15:
        return f"{value:,.0f}"
    size = math.floor(math.log10(abs(value)))
    return f"{value:,.{max(0, 3 - size)}f}" if size < 4 else f"{value:,.0f}"


def cause(cells: Mapping[str, Seeds], kinds: Mapping[str, str]) -> str:
    """Where the difference between the schedulers comes from, in a sentence or two."""
    told = [_cause(cells, kinds), _memory(cells), _classes(cells), _clients(cells)]
    return " ".join(sentence for sentence in told if sentence)


def _cause(cells: Mapping[str, Seeds], kinds: Mapping[str, str]) -> str:
    static = next((name for name in cells if kinds[name] == "static"), None)
    other = next((name for name in cells if kinds[name] != "static"), None)
    if static is None or other is None:
        return _cause_of_latency(cells)
    held = _mean(cells[static], "stranded_slot_iterations")
    empty = _mean(cells[static], "empty_slot_iterations")
    total = _mean(cells[static], "slot_iterations")
    tokens = _rateratio(cells, other, static)
    makes = "" if math.isnan(tokens) or tokens < 1 else f"{tokens:.2f}×"
    average = "on average " if len(cells[static]) > 1 else ""
    if not total or not _mean(cells[other], "slot_iterations"):
        return f"{static if not total else other} ran no iteration: see the notes."
    width = (total - empty) / total_iterations(cells[static])
    if not held:
        alike = "held one request each" if width == 1 else "had answers of one length each"
        why = f", as its batches {alike}" if width == 1 or _all_completed(cells[static]) else ""
        more = f"; {other} makes {makes} its tokens per second" if makes else ""
        return f"{static} held no slot for a request that had ended{why}{more}."
    sentence = (
        f"{static} {average}held {number(held)} slot-iterations for requests that had "
        f"ended ({held / total:.1%} of all)"
    )
    if empty:
        sentence += f" and left {number(empty)} empty"
    if _stopped(cells[static], "kv") > total_iterations(cells[static]) / 2:
        sentence += (
            f" (its batches had {number(width)} requests on average, as KV memory for padded "
            "prompts and whole limits holds no more)"
        )
    wanted = _mean(cells[static], "recoverable_slot_iterations")
    if not wanted:
        sentence += "; nobody waited for them"
        sentence += f", and {other} makes {makes} the tokens per second" if makes else ""
        early, late = (_known(cells[name], "e2e_mean_s") for name in (other, static))
        if early is not None and late is not None and early < (1 - WORTH_TELLING) * late:
            sentence += (
                f"; an answer is there {number(early)} s after its arrival on average under "
                f"{other}, {number(late)} s under {static}"
            )
        return f"{sentence}."
    refilled = _mean(cells[other], "idle_slot_iterations")
    theirs = _mean(cells[other], "slot_iterations")
    sentence += f", while requests waited for {number(wanted)} of these slots"
    if not makes:
        return f"{sentence}."
    return (
        f"{sentence}; {other} refills a slot when its request has ended and left "
        f"{number(refilled)} idle ({refilled / theirs:.1%}), which makes {makes} the tokens per "
        "second."
    )


def total_iterations(seeds: Seeds) -> float:
    """Iterations per seed, on average."""
    return _mean(seeds, "iterations")


def _stopped(seeds: Seeds, limit: str) -> float:
    return math.fsum(float(summary["stopped_by"][limit]) for summary in seeds) / len(seeds)


def _all_completed(seeds: Seeds) -> bool:
    return all(summary["completed"] == summary["offered"] for summary in seeds)


def _cause_of_latency(cells: Mapping[str, Seeds]) -> str:
    """The longest stall and the mean waits; nothing of what some scheduler has no value of."""
    stalls, waits = _all_known(cells, "itl_max_s"), _all_known(cells, "queue_mean_s")
    told, at = [], list(waits)
    if stalls:
        longest = max(stalls, key=lambda name: stalls[name])
        shortest = min(stalls, key=lambda name: stalls[name])
        if number(stalls[longest] * 1e3) == number(stalls[shortest] * 1e3):
            told.append(
                f"the longest gap between two tokens is {number(stalls[longest] * 1e3)} ms under "
                f"{'all schedulers' if len(cells) > 1 else longest}"
            )
        else:
            told.append(
                f"the longest gap between two tokens is {number(stalls[longest] * 1e3)} ms under "
                f"{longest} and {number(stalls[shortest] * 1e3)} ms under {shortest}"
            )
            at = [longest, shortest]
    if waits:
        admitted = "" if _all_admitted(cells) else " of those admitted"
        texts = {name: f"{number(waits[name] * 1e3)} ms" for name in waits}
        alike = len(cells) > 1 and len(set(texts.values())) == 1
        least, most = min(waits, key=lambda n: waits[n]), max(waits, key=lambda n: waits[n])
        if len(at) > NAMED and not alike:
            told.append(
                f"mean queue waits{admitted} go from {texts[least]} under {least} to "
                f"{texts[most]} under {most}"
            )
        elif alike:
            told.append(f"the mean queue wait{admitted} is {texts[at[0]]} under all schedulers")
        else:
            each = [f"{texts[name]} under {name}" for name in at]
            told.append(f"mean queue waits{admitted} are {_listed(each)}")
    return "; ".join(told) + "." if told else ""


def _memory(cells: Mapping[str, Seeds]) -> str:
    """What a lack of memory, or of urgency, made the servers do twice."""
    told = []
    for name, seeds in cells.items():
        count = _mean(seeds, "preemptions")
        if not count:
            continue
        work = [
            f"{number(amount)} {what}"
            for metric, what in (
                ("recomputed_tokens", "tokens recomputed"),
                ("swapped_blocks", "blocks swapped"),
            )
            if (amount := _mean(seeds, metric))
        ]
        why = f" ({', '.join(work)})" if work else ""
        told.append(f"{name} preempted {number(count)} times{why}")
    return _sentence("; ".join(told))


def _classes(cells: Mapping[str, Seeds]) -> str:
    """What the order did to the most and the least urgent, and to the tenants."""
    found, told = classes(cells), []
    if "priority" in found:
        urgent, *_, patient = found["priority"]
        for label, metric, what in (
            (urgent, "ttft_p99_s", "the TTFT p99"),
            (patient, "queue_max_s", "the longest wait"),
        ):
            values = {
                name: estimated(
                    [s["groups"].get("priority", {}).get(label, {}) for s in seeds], metric
                )
                for name, seeds in cells.items()
            }
            told.append(_spread(values, f"{what} of priority {label}", 1e3, " ms"))
    # when all is served, the shares of service are those of the workload
    if "tenant" in found and not all(_all_completed(seeds) for seeds in cells.values()):
        values = {name: estimated(seeds, "jain_service") for name, seeds in cells.items()}
        told.append(_spread(values, "Jain's index over the tenants' service", 1, ""))
    return _sentence("; ".join(part for part in told if part))


def _clients(cells: Mapping[str, Seeds]) -> str:
    """How many requests their clients gave up, where that differs."""
    shares = {}
    for name, seeds in cells.items():
        gone = _mean(seeds, "canceled") + _mean(seeds, "timed_out")
        shares[name] = gone / max(_mean(seeds, "offered"), 1)
    least, most = min(shares, key=lambda n: shares[n]), max(shares, key=lambda n: shares[n])
    if shares[most] - shares[least] < WORTH_TELLING:
        return ""
    return (
        f"Clients gave up {shares[most]:.1%} of the requests under {most} and "
        f"{shares[least]:.1%} under {least}."
    )


def _spread(values: Mapping[str, Estimate | None], what: str, scale: float, unit: str) -> str:
    """*what* under the schedulers where it is least and most; nothing if they hardly differ."""
    there = {name: value.mean for name, value in values.items() if value is not None}
    if len(there) < 2:
        return ""
    least, most = min(there, key=lambda n: there[n]), max(there, key=lambda n: there[n])
    if there[most] - there[least] <= WORTH_TELLING * there[most]:
        return ""
    return (
        f"{what} is {number(there[least] * scale)}{unit} under {least} and "
        f"{number(there[most] * scale)}{unit} under {most}"
    )


def _sentence(text: str) -> str:
    """*text* as a sentence of its own. Schedulers keep their names as they are written."""
    if not text:
        return ""
    return (text[0].upper() if text.startswith("the ") else text[0]) + text[1:] + "."


def _rateratio(cells: Mapping[str, Seeds], name: str, base: str) -> float:
    below = _mean(cells[base], "output_tokens_per_s")
    return _mean(cells[name], "output_tokens_per_s") / below if below else math.nan


def _known(seeds: Seeds, metric: str) -> float | None:
    """The mean over the seeds, if all of them have a value."""
    value = estimated(seeds, metric)
    return None if value is None else value.mean


def _all_known(cells: Mapping[str, Seeds], metric: str) -> dict[str, float]:
    """The means under the schedulers; empty if one of them has none."""
    found = {name: _known(seeds, metric) for name, seeds in cells.items()}
    there = {name: value for name, value in found.items() if value is not None}
    return there if len(there) == len(found) else {}


def _all_admitted(cells: Mapping[str, Seeds]) -> bool:
    gone = ("waiting", "canceled", "timed_out", "rejected")
    return not any(s[what] for seeds in cells.values() for s in seeds for what in gone)


def _listed(texts: list[str]) -> str:
    return " and ".join([", ".join(texts[:-1]), texts[-1]] if len(texts) > 1 else texts)


def _mean(seeds: Seeds, metric: str) -> float:
    values = [float(summary[metric] or 0) for summary in seeds]
    return math.fsum(values) / len(values)


REMEDIES = {
    "exceeds_kv_cache": "prompt and limit need more blocks than there are: raise kv_blocks",
    "exceeds_token_budget": "the prompt exceeds the token budget: raise max_batched_tokens, or use "
    "kind: chunked",
    "exceeds_context": "prompt and limit exceed max_context_tokens",
    "hopeless": "the deadline was out of reach, and order: edf sheds such requests",
    "kv_exhausted": "preemption: reject ends whom a lack of blocks preempts: raise kv_blocks, or "
    "say recompute",
}


def _refusals(seeds: Seeds) -> str:
    reasons = sorted({reason for summary in seeds for reason in summary["rejected_by"]})
    later = not all(reason.startswith("exceeds") for reason in reasons)
    why = "; ".join(f"{r}: {REMEDIES[r]}" for r in reasons)
    return f"{'rejected' if later else 'refused on arrival'} ({why})"


def _saturated(name: str, seeds: Seeds) -> list[str]:
    """What to say of runs in which requests arrived faster than they were served."""
    over = [summary for summary in seeds if summary.get("saturated")]
    if not over:
        return []
    share = math.fsum(summary["served_share"] for summary in over) / len(over)
    where = f" in {len(over)} of {len(seeds)} seeds" if len(seeds) > 1 else ""
    return [
        f"{SATURATED} {name} is saturated{where}: it served {share:.0%} of what arrived in the "
        "second half of the arrivals, so waits, TTFT and E2E only say how long the run went on"
    ]


def notes(
    cells: Mapping[str, Seeds], oracle: Mapping[str, str], backlog: bool = False
) -> list[str]:
    """What a reader must know before believing the table."""
    found = []
    if backlog:
        found.append(
            "every request of an endless backlog arrives at 0, so TTFT and E2E (in summary.csv) "
            "say how long the run went on; TPOT and admission to answer do not depend on that"
        )
    for name, seeds in cells.items():
        offered = sum(int(summary["offered"]) for summary in seeds)
        if all(summary.get("without_effect") for summary in seeds):
            found.append(f"{name}: without effect: {seeds[0]['without_effect']}")
        if not offered:
            found.append(f"{name}: no request arrived by the horizon; raise horizon_s")
        for metric, what in (
            ("running", "still running when the run ended"),
            ("waiting", "still waiting when the run ended"),
            ("canceled", "canceled by their client"),
            ("timed_out", "given up by their client after a time-out"),
            ("rejected", ""),
        ):
            count = sum(int(summary[metric]) for summary in seeds)
            if count:
                what = what or _refusals(seeds)
                found.append(
                    f"{name}: {count:,} of {offered:,} requests were {what}; latencies are of "
                    "those that got so far"
                )
        found += _saturated(name, seeds)
        outside = sum(int(summary["outside_range_iterations"]) for summary in seeds)
        if outside:
            every = sum(int(summary["iterations"]) for summary in seeds)
            found.append(
                f"{name}: {outside:,} of {every:,} iterations lie outside what the step-time curve "
                "was measured on; it was continued linearly there"
            )
        if name in oracle:
            found.append(f"{name}: {oracle[name]}")
    for by, labels in classes(cells).items():
        if len(labels) > CLASSES:
            found.append(f"groups.csv of each cell has all {len(labels)} classes by {by}")
    if any(unsure(seeds) for seeds in cells.values()):
        found.append(f"{UNSURE} fewer than ten samples lie beyond this quantile")
    return found
