"""Images in tasks: prompts that hold them, their shard, and vision-language models. Text-only runs use none of it."""
