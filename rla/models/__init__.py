"""Models on disk: a small new one, and loading of any Hugging Face folder."""
