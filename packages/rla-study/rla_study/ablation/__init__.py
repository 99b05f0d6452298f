"""Arms of one experiment: the same start, the same budget of episodes, different parameters, several seeds each."""
