"""The task folders are data: their tests run in the sandbox."""

collect_ignore = ["tasks"]
