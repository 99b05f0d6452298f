"""Runs side by side: what differs in their parameters, what they reached, and at what cost."""
