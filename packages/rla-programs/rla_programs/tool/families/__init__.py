"""Generated questions of our own: small, exact, offline, with levels, and each with the program that answers it."""
