"""Environments of other projects as environments of rla, and environments of rla as an OpenEnv server."""
