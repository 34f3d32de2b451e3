"""Why the schedulers differ at one point: a sentence or two, computed from their own numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping

from experiments.facts import capitalised, known, mean, number
from experiments.intervals import Estimate
from experiments.table_rows import Seeds, classes, estimated

NAMED = 3  # schedulers whose waits a sentence names one by one
WORTH_TELLING = 0.01  # a difference below one in a hundred is none
LIKE_CHANCE = 0.05  # of the largest of thousands of gaps, which a single batch decides


def cause(cells: Mapping[str, Seeds], kinds: Mapping[str, str]) -> str:
    """Where the difference between the schedulers comes from, in a sentence or two."""
    told = [_cause(cells, kinds), _memory(cells), _classes(cells), _clients(cells)]
    return " ".join(sentence for sentence in told if sentence)


def _cause(cells: Mapping[str, Seeds], kinds: Mapping[str, str]) -> str:
    static = next((name for name in cells if kinds[name] == "static"), None)
    other = next((name for name in cells if kinds[name] != "static"), None)
    if static is None or other is None:
        return _cause_of_latency(cells)
    held = mean(cells[static], "stranded_slot_iterations")
    empty = mean(cells[static], "empty_slot_iterations")
    total = mean(cells[static], "slot_iterations")
    tokens = _rateratio(cells, other, static)
    makes = "" if math.isnan(tokens) or tokens < 1 else f"{tokens:.2f}×"
    average = "on average " if len(cells[static]) > 1 else ""
    if not total or not mean(cells[other], "slot_iterations"):
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
    wanted = mean(cells[static], "recoverable_slot_iterations")
    if not wanted:
        sentence += "; nobody waited for them"
        sentence += f", and {other} makes {makes} the tokens per second" if makes else ""
        answered = known({name: cells[name] for name in (other, static)}, "e2e_mean_s")
        if answered and answered[other] < (1 - WORTH_TELLING) * answered[static]:
            sentence += (
                f"; an answer is there {number(answered[other])} s after its arrival on average "
                f"under {other}, {number(answered[static])} s under {static}"
            )
        return f"{sentence}."
    refilled = mean(cells[other], "idle_slot_iterations")
    theirs = mean(cells[other], "slot_iterations")
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
    return mean(seeds, "iterations")


def _stopped(seeds: Seeds, limit: str) -> float:
    return math.fsum(float(summary["stopped_by"][limit]) for summary in seeds) / len(seeds)


def _all_completed(seeds: Seeds) -> bool:
    return all(summary["completed"] == summary["offered"] for summary in seeds)


def _cause_of_latency(cells: Mapping[str, Seeds]) -> str:
    """The longest stall and the mean waits; nothing of what some scheduler has no value of."""
    stalls, waits = known(cells, "itl_max_s"), known(cells, "queue_mean_s")
    told, at = [], list(waits)
    if stalls:
        longest = max(stalls, key=lambda name: stalls[name])
        shortest = min(stalls, key=lambda name: stalls[name])
        if number(stalls[longest] * 1e3) == number(stalls[shortest] * 1e3):
            told.append(
                f"the longest gap between two tokens is {number(stalls[longest] * 1e3)} ms under "
                f"{'all schedulers' if len(cells) > 1 else longest}"
            )
        elif stalls[longest] - stalls[shortest] < LIKE_CHANCE * stalls[longest]:
            told.append(
                f"the longest gap between two tokens is {number(stalls[shortest] * 1e3)} to "
                f"{number(stalls[longest] * 1e3)} ms"
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
        count = mean(seeds, "preemptions")
        if not count:
            continue
        work = [
            f"{number(amount)} {what}"
            for metric, what in (
                ("recomputed_tokens", "tokens recomputed"),
                ("swapped_blocks", "blocks swapped"),
            )
            if (amount := mean(seeds, metric))
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
        gone = mean(seeds, "canceled") + mean(seeds, "timed_out")
        shares[name] = gone / max(mean(seeds, "offered"), 1)
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
    return f"{capitalised(text)}." if text else ""


def _rateratio(cells: Mapping[str, Seeds], name: str, base: str) -> float:
    below = mean(cells[base], "output_tokens_per_s")
    return mean(cells[name], "output_tokens_per_s") / below if below else math.nan


def _all_admitted(cells: Mapping[str, Seeds]) -> bool:
    gone = ("waiting", "canceled", "timed_out", "rejected")
    return not any(s[what] for seeds in cells.values() for s in seeds for what in gone)


def _listed(texts: list[str]) -> str:
    return " and ".join([", ".join(texts[:-1]), texts[-1]] if len(texts) > 1 else texts)
