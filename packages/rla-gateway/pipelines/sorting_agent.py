"""An agent: it tidies up, and asks a model where things go. It knows an endpoint, and nothing else.

    OPENAI_BASE_URL=http://... OPENAI_API_KEY=... python sorting_agent.py task.json

There are two things to put away and three tries. If both are in their places at the end, the exit status is 0, and
otherwise 1. Only the standard library, so that it starts at once.
"""

import http.client
import json
import os
import sys
from urllib.parse import urlsplit

TRIES = 3
PLACES = {
    "kitchen": ("apple", "bread", "kettle", "spoon"),
    "garage": ("bicycle", "hammer", "ladder", "tyre"),
    "garden": ("bench", "rake", "seeds", "tulip"),
}


class Model:
    """A conversation with a model behind an OpenAI-compatible endpoint."""

    def __init__(self) -> None:
        address = urlsplit(os.environ["OPENAI_BASE_URL"])
        self.connection = http.client.HTTPConnection(address.hostname, address.port, timeout=600)
        self.path = address.path + "/chat/completions"
        self.headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"}
        self.messages: list[dict[str, str]] = []

    def say(self, text: str) -> str:
        """The model's reply to a text."""
        self.messages.append({"role": "user", "content": text})
        body = json.dumps({"model": "policy", "messages": self.messages})
        self.connection.request("POST", self.path, body, self.headers)
        answer = json.loads(self.connection.getresponse().read())
        if "choices" not in answer:
            sys.exit(answer["error"]["message"])
        reply = answer["choices"][0]["message"]
        self.messages.append(reply)
        return reply["content"]


def tidy(things: list[str]) -> bool:
    """Whether every thing is put into its place."""
    model, heard = Model(), ""
    for _ in range(TRIES):
        place = model.say(f"{heard}where does the {things[0]} go?").strip().lower()
        right = things[0] in PLACES.get(place, ())
        heard, things = ("yes. ", things[1:]) if right else ("no. ", things)
        if not things:
            return True
    return False


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        sys.exit(0 if tidy(json.load(file)["things"]) else 1)
