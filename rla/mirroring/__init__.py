"""Runs on an object store: a run that is named by a URL has a mirror folder here, in which stages work as ever."""
