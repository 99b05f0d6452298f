"""Programs that run on a machine, inside its sandbox: they use the standard library only, and no other part of
`rla`.
"""
