"""What the documentation takes from the code: the reference pages, from docstrings, JSON Schemas and the command line,
and the tables of the paper's parameters.

`make docs` makes the reference pages anew for each site; they are not committed. Nothing that differs between two
machines enters a page: no time, no path, no width.
"""
