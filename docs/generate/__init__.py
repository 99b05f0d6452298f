"""The reference pages of the documentation, made from docstrings, JSON Schemas and the command line.

`python -m docs.generate` writes them below `docs/reference/`; `tests/unit/docs/test_reference.py` fails where the
committed pages differ. Nothing that differs between two machines enters a page: no time, no path, no width.
"""
