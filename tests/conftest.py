"""For every folder of tests: one thread of linear algebra each."""

import os

# fits solve many small problems, on which threads of linear algebra only wait for each other
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
