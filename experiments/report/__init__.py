"""`itersim report`: one page, with nothing outside it, of what a results folder holds."""
