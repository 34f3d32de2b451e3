"""`run.json` of a results folder: what tables and records do not hold of a run.

For whoever reads it later: versions, where its step times come from, and what was said of it.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path

from experiments.figures_shown import Frame
from experiments.printed import Remarks
from experiments.profiles import profiles_of
from experiments.spec import Spec

NAME = "run.json"
PACKAGES = ("itersim", "numpy", "scipy", "simpy")
PROVENANCE = (
    "device",
    "model",
    "tensor_parallel",
    "engine",
    "engine_version",
    "precision",
    "source",
    "licence",
    "made_by",
    "error",
    "assumptions",
    "notes",
    "sha256",
)
"""What is kept of a profile, besides its name."""


def write_about(
    folder: Path,
    spec: Spec,
    frame: Frame,
    read: Iterable[str],
    said: Remarks,
    cause: str,
    window: tuple[int, int] | None = None,
) -> None:
    """Write it into *folder*. *frame*: what pictures know of *spec*; *read*: what was said of trace
    files; *said*: of each point; *cause*: that of the whole experiment; *window*: the iterations
    that pictures show.
    """
    data = {
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in PACKAGES},
        },
        "profiles": {
            profile.name: {key: getattr(profile, key) for key in PROVENANCE}
            for profile in profiles_of(spec)
        },
        "read": list(dict.fromkeys(read)),
        "points": [
            {"point": key, "cause": remark.cause, "notes": remark.notes}
            for key, remark in said.items()
        ],
        "cause": cause,
        "window": window,
        "closed_forms": frame.closed_forms,
    }
    path = folder / NAME
    path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
