"""Built-in problems: a few hundred, drawn from templates with parameters, each with a solution and hidden tests.

`drawn_problems` makes them. Which parameters are held out is fixed by the template's name alone, so that no held-out
problem, of either kind, is a training problem of any seed; the seed decides which are drawn and their tests.
"""

from rla_programs.coding.builtin.drawing import Drawn, available, drawn_problems, templates

__all__ = ["Drawn", "available", "drawn_problems", "templates"]
