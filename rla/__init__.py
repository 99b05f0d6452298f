"""RLAnything: policy, reward model and environment tasks trained in one closed loop."""

__version__ = "0.1.0"
