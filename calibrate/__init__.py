"""Step times: measured on devices or read from what others published, fitted, and validated."""
