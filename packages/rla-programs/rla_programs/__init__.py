"""Environments whose models write programs (`coding`) and call tools (`tool`), and the sandbox that runs them."""

from pathlib import Path

PIPELINES = Path(__file__).with_name("pipelines")  # the parameter files that `rla init --pipeline` offers
