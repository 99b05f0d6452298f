"""A real desktop: machines, the guest's protocol of OSWorld, its tasks, and tasks of our own."""
