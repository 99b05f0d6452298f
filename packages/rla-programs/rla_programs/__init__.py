"""Environments whose models write programs (`coding`) and call tools (`tool`), and the sandbox that runs them."""

from pathlib import Path

PIPELINES = Path(__file__).with_name("pipelines")  # what `rla init --pipeline` offers
