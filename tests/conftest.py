"""Makes the naive simulator importable from every folder of tests."""

import os

# fits solve many small problems, on which threads of linear algebra only wait for each other
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
