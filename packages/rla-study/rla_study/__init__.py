"""Studies of runs: episodes, ablations, comparisons, plans of memory and time, timelines, trackers, Inspect logs."""

from pathlib import Path

PIPELINES = Path(__file__).with_name("pipelines")  # the parameter files that `rla init --pipeline` offers
