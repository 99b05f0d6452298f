"""What an agent on the official client does: models, a reply, a stream, tools. It knows nothing but the environment."""

import json
import sys

from openai import AuthenticationError, BadRequestError, OpenAI

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "add",
            "description": "Adds two numbers.",
            "parameters": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
        },
    }
]
client = OpenAI()
model = client.models.list().data[0].id
messages = [{"role": "developer", "content": "You add."}, {"role": "user", "content": "1 + 2?"}]
reply = client.chat.completions.create(model=model, messages=messages, tools=TOOLS, temperature=0.3, max_tokens=9)
(call,) = reply.choices[0].message.tool_calls
assert (reply.choices[0].finish_reason, call.function.name) == ("tool_calls", "add"), reply
assert reply.usage.total_tokens == reply.usage.prompt_tokens + reply.usage.completion_tokens > 0
total = sum(json.loads(call.function.arguments).values())
messages += [reply.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": str(total)}]
text, finish, counts = "", None, None
with client.chat.completions.create(
    model=model, messages=messages, tools=TOOLS, stream=True, stream_options={"include_usage": True}
) as stream:
    for chunk in stream:
        if chunk.choices:
            text += chunk.choices[0].delta.content or ""
            finish = chunk.choices[0].finish_reason or finish
        counts = chunk.usage or counts
assert (text, finish) == ("It is 3.", "stop"), (text, finish)
assert counts.prompt_tokens > reply.usage.total_tokens
messages += [{"role": "assistant", "content": text}, {"role": "user", "content": "Call twice."}]
names = []
with client.chat.completions.stream(model=model, messages=messages, tools=TOOLS) as stream:
    for event in stream:
        if event.type == "tool_calls.function.arguments.done":
            names.append((event.name, json.loads(event.arguments)))
    final = stream.get_final_completion().choices[0]
assert names == [("add", {"a": 1, "b": 2}), ("add", {"a": 3, "b": 4})], names
assert final.finish_reason == "tool_calls"
try:
    client.chat.completions.create(model=model, messages=messages, n=2)
    sys.exit("n=2 was served")
except BadRequestError as error:
    assert "n must be 1" in str(error)
try:
    OpenAI(api_key="sk-wrong").models.list()
    sys.exit("a wrong key was served")
except AuthenticationError:
    pass
