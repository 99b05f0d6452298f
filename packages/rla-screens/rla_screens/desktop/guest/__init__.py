"""Programs that run on a machine, inside of its walls: the standard library alone, and nothing of the rest of `rla`."""
