"""Ray: engines that stay loaded, training over nodes, environments on other hosts."""
