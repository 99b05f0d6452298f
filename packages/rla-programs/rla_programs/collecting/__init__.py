"""Conversations that a policy may be cloned from: played by a teacher, or rebuilt from what was played."""
