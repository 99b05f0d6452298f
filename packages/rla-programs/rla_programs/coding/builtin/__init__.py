"""Built-in problems: a few hundred, drawn from templates with parameters, each with a solution and hidden tests.

`drawn_problems` makes them. The template's name alone fixes which parameters are held out, so a held-out problem, of
either kind, is never a training problem of any seed. The seed decides which problems are drawn, and their tests.
"""

from rla_programs.coding.builtin.drawing import Drawn, available, drawn_problems, templates

__all__ = ["Drawn", "available", "drawn_problems", "templates"]
