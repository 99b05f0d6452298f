"""Texts that differ in nothing but white space are one text: the form in which they are compared."""

from __future__ import annotations


def single_spaced(text: str) -> str:
    """The words of a text with one space between them. Equal for texts that differ in white space alone."""
    return " ".join(text.split())
