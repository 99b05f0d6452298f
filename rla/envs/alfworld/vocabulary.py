"""Turns of speech that a small model's tokenizer gives a token of their own."""

from __future__ import annotations

PHRASES = (
    "you are in the middle of a room. looking quickly around you, you see a",
    "your task is to:",
    "you arrive at",
    "nothing happens.",
    ". on the",
    ", you see a",
    ", you see nothing.",
    ", and a",
    ", a",
    "is closed.",
    "is open. in it, you see a",
    "is open. in it, you see nothing.",
    "you open the",
    "you close the",
    "you pick up the",
    "from the",
    "you move the",
    "you put the",
    "to the",
    "in/on the",
    "using the",
    "go to",
    "judge:",
    "score +1",
    "score -1",
)
