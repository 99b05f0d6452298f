"""Studies of runs: ablations, comparisons, plans of memory and time, timelines, Inspect logs."""

from pathlib import Path

PIPELINES = Path(__file__).with_name("pipelines")  # what `rla init --pipeline` offers
