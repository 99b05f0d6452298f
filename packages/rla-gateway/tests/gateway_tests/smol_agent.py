"""An agent of the framework smolagents with a tool, on any OpenAI-compatible endpoint."""

import os
import sys

from smolagents import OpenAIModel, ToolCallingAgent, tool


@tool
def multiply(a: int, b: int) -> int:
    """Multiplies two numbers.

    Args:
        a: the first number
        b: the second number
    """
    return a * b


model = OpenAIModel("policy", api_base=os.environ["OPENAI_BASE_URL"], api_key=os.environ["OPENAI_API_KEY"])
agent = ToolCallingAgent(tools=[multiply], model=model, max_steps=4, verbosity_level=0)
sys.exit(str(agent.run("What is 6 * 7?")) != "42")
