"""Rows of question data sets, each read into a `FoundQuestion`: no text of a row is executed or quoted in a message."""
