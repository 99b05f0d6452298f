"""Programs that run on a machine, inside its sandbox: they use only the standard library, and nothing of `rla`."""
