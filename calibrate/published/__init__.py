"""Measurements that others published: readers, and the curves we fit to them.

`python -m calibrate.published DATA_DIR` reads the folder ``DATA_DIR/calibration`` (or DATA_DIR
itself) and writes every profile that ships in ``calibrate/profiles``.
"""

COMMAND = "python -m calibrate.published DATA_DIR"
