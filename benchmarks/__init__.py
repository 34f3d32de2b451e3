"""Speed, as ratios measured in one run: ours against SimPy's bare time-out loop."""
