"""Runs side by side: their parameters, results and costs."""
