"""Programs that talk to an OpenAI-compatible endpoint as the environment `agent`: the policy answers their requests."""
