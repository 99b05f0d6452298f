"""The environment `harbor`: tasks in the format of Harbor, which a policy solves in a shell."""

from pathlib import Path

PIPELINES = Path(__file__).with_name("pipelines")  # the parameter files that `rla init --pipeline` offers
