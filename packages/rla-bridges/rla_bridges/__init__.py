"""Environments of other projects as environments of rla, and those of rla as an OpenEnv server."""
