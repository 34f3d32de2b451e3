"""Makes the naive simulator importable from every folder of tests."""
