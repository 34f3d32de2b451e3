"""What every fault of `calibrate` is that its user can mend. Imports nothing."""

from __future__ import annotations


class CalibrationError(ValueError):
    """Something that was given cannot be used; the message says what, and the remedy."""
