"""Conversations to clone a policy from: played by a teacher, or rebuilt from earlier episodes."""
