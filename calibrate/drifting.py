"""How slow the machine was at every sample, judged afterwards, from all that was measured around.

While measuring, only the anchors of the past are known; afterwards, those of the future too, and
every point is an anchor of its own: it was measured in several rounds, so what it took now, against
what it usually took, shows the speed of now. Of several ways to smooth that, the best is the one
that leaves the least spread between a point's samples; no way looks at the sample that it judges.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from calibrate.clock import WINDOW
from calibrate.samples import Floats
from calibrate.store import ANCHOR

ANCHORS = (5, 9, 15, 25)
"""Anchors around a sample whose median may be its drift."""

VISITS = (8, 16, 32)
"""Visits around a sample, of whatever point, whose median may be its drift."""

AS_READ = "the anchors as they were read then"

TURNS = 2
"""Usual times and drift are estimated from each other so often. More often, a sample would come to
be judged by itself, round about, and the narrowest window would always look best."""

PAUSE_S = 30.0
"""A pause of so long between two rows begins a session: nothing is smoothed across it."""


def drift_of(raw: pd.DataFrame, step: pd.Series, as_read: bool) -> tuple[pd.Series, str]:
    """The drift at every row of a store, 1 at the speed of its first anchors, and how it was got.

    *step* are the seconds of the rows; *as_read*: take what was read off the anchors then.
    """
    if as_read:
        return raw["drift"], AS_READ
    anchors = raw["region"] == ANCHOR
    session = (raw["moment"].diff() > PAUSE_S).cumsum()
    ways = {AS_READ: raw["drift"]}
    ratio = _of_anchors(raw, step, anchors)
    if len(ratio):
        ways["one factor for all of it"] = pd.Series(float(ratio.median()), index=raw.index)
    for window in ANCHORS if len(ratio) else ():
        parts = ratio.groupby(session[ratio.index])
        smooth = parts.transform(lambda r, w=window: r.rolling(w, 1, center=True).median())
        whole = smooth.reindex(raw.index).groupby(session)
        ways[f"the median of {window} anchors around"] = whole.ffill().fillna(whole.bfill())
    for window in VISITS:
        found = _of_visits(raw, step, session, window)
        if len(ratio):  # in the anchors' units
            found = found * float((ratio / found[anchors]).median())
        ways[f"the median of {window} steps around, against their usual times"] = found
    best = min(ways, key=lambda way: _spread(raw, step / ways[way], ~anchors))
    return ways[best], best


def _of_anchors(raw: pd.DataFrame, step: pd.Series, anchors: pd.Series) -> pd.Series:
    """Every anchor relative to the first few of its kind."""
    first = step[anchors].groupby(raw.loc[anchors, "point"])
    return step[anchors] / first.transform(lambda seconds: seconds.iloc[:WINDOW].median())


def _of_visits(raw: pd.DataFrame, step: pd.Series, session: pd.Series, window: int) -> pd.Series:
    """The median ratio to their usual time of the *window* visits around, the own one left out. A
    visit is a point's samples in one round, which lie together."""
    name = raw["region"].where(raw["region"] == ANCHOR, "") + raw["point"]
    visit = ((name != name.shift()) | (raw["round"] != raw["round"].shift())).cumsum()
    drift = pd.Series(1.0, index=raw.index)
    for _ in range(TURNS):
        usual = (step / drift).groupby(name).transform("median")
        of_visit = (step / usual).groupby(visit).mean()
        around = _median_around(
            of_visit.to_numpy(np.float64), session.groupby(visit).first().to_numpy(), window // 2
        )
        drift = visit.map(pd.Series(around, index=of_visit.index))
    return drift


def _median_around(values: Floats, session: Floats, reach: int) -> Floats:
    """The median of the *reach* values on either side, of the same session; a value that has none
    around it keeps the median of all."""
    padded = np.pad(values, reach, constant_values=np.nan)
    where = np.pad(session.astype(np.float64), reach, constant_values=np.nan)
    columns = [i for i in range(2 * reach + 1) if i != reach]
    near = np.stack([padded[i : i + len(values)] for i in columns])
    same = np.stack([where[i : i + len(values)] for i in columns]) == session
    near[~same] = np.nan
    alone = np.isnan(near).all(axis=0)
    near[:, alone] = np.median(values)
    result: Floats = np.nanmedian(near, axis=0)
    return result


def _spread(raw: pd.DataFrame, seconds: pd.Series, points: pd.Series) -> float:
    """The median deviation of a sample from its point's median, relative."""
    seconds = seconds[points]
    middle = seconds.groupby(raw.loc[points, "point"]).transform("median")
    return float((seconds / middle - 1.0).abs().median())
