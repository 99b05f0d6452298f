"""Ray: engines that stay loaded between stages, training over several nodes, environments on other hosts."""
