"""`python -m experiments` is the `itersim` command."""

from experiments.cli import main

main()
