"""Our own generated questions: small, exact, offline, with levels, and each with the program that answers it."""
