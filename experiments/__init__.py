"""Experiments: from one YAML file to cells, tables, pictures and pages; the `itersim` command."""
