"""`python -m calibrate.published DATA_DIR`: writes every profile made from published data."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the profiles and list them with their errors; 0 done, 2 the input is wrong."""
    # one thread: sums come in the same order, so the files have the same bytes, on any machine
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from calibrate.csv_files import ReadError
    from calibrate.published import (
        aic_profiles,
        distserve,
        llmservingsim_profiles,
        splitwise,
        splitwise_profiles,
    )

    parser = argparse.ArgumentParser(prog="python -m calibrate.published", description=__doc__)
    parser.add_argument("data", type=Path, metavar="DATA_DIR", help="holds calibration/*.csv")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path(__file__).parents[1] / "profiles",
        help="folder for the profiles (default: those of the package)",
    )
    given = parser.parse_args(arguments)
    inner = given.data / "calibration"
    folder = inner if inner.is_dir() else given.data
    try:
        documents = [
            *splitwise_profiles.documents(folder / splitwise.FILE),
            *distserve.documents(folder / distserve.FILE),
            *aic_profiles.documents(folder),
            *llmservingsim_profiles.documents(folder),
        ]
    except ReadError as error:
        print(error, file=sys.stderr)
        return 2
    for flag, count in splitwise.read(folder / splitwise.FILE).skipped.items():
        print(f"{splitwise.FILE}: {count} rows skipped: {flag}", file=sys.stderr)
    given.out.mkdir(parents=True, exist_ok=True)
    for document in documents:
        (given.out / f"{document.name}.yaml").write_text(document.text(), encoding="utf-8")
        print(document.summary())
    return 0


if __name__ == "__main__":
    sys.exit(main())
