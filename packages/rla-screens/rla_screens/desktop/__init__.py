"""A real desktop: machines, the guest protocol of OSWorld, its tasks, and tasks of our own."""
