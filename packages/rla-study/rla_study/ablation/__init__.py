"""Arms of one experiment: the same start and budget of episodes, different parameters, several seeds each."""
