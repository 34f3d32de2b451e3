"""`python -m experiments` is the `itersim` command."""

from experiments.cli import main

if __name__ == "__main__":  # a process that is spawned imports this module again
    main()
