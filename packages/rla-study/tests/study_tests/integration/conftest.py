"""Fixtures of the core's integration tests."""

from tests.integration.conftest import rla

__all__ = ["rla"]
