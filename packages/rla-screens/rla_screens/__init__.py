"""Environments that are seen on a screen: web pages in a browser, and desktops."""

from pathlib import Path

PIPELINES = Path(__file__).with_name("pipelines")  # the parameter files that `rla init --pipeline` offers
