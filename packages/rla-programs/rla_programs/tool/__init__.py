"""Questions with a checkable answer, and a Python interpreter to find it with: rounds of text, calls and results."""
