"""An agent: it has a number in mind, from 0 to 99, and lets a model guess it. It knows an endpoint, and nothing else.

    OPENAI_BASE_URL=http://... OPENAI_API_KEY=... python guessing_agent.py task.json

The model has three guesses, and hears after each whether the number is higher or lower. A guess that is at most eight
away finds it: then the exit status is 0, and otherwise 1. Only the standard library, so that it starts at once.
"""

import http.client
import json
import os
import re
import sys
from urllib.parse import urlsplit

GUESSES, CLOSE = 3, 8


class Model:
    """A conversation with a model behind an OpenAI-compatible endpoint."""

    def __init__(self) -> None:
        address = urlsplit(os.environ["OPENAI_BASE_URL"])
        self.connection = http.client.HTTPConnection(address.hostname, address.port, timeout=600)
        self.path = address.path + "/chat/completions"
        self.headers = {
            "Authorization": "Bearer " + os.environ["OPENAI_API_KEY"],
            "Content-Type": "application/json",
        }
        self.messages: list[dict[str, str]] = []

    def say(self, text: str) -> str:
        """The model's reply to a text."""
        self.messages.append({"role": "user", "content": text})
        body = json.dumps({"model": "policy", "messages": self.messages, "max_tokens": 4})
        self.connection.request("POST", self.path, body, self.headers)
        answer = json.loads(self.connection.getresponse().read())
        if "choices" not in answer:
            sys.exit(answer["error"]["message"])
        reply = answer["choices"][0]["message"]
        self.messages.append(reply)
        return reply["content"]


def play(secret: int) -> bool:
    """Whether the model finds the number."""
    model, text = Model(), "guess my number from 0 to 99."
    for _ in range(GUESSES):
        guess = re.search("[0-9]+", model.say(text))
        if guess is None:
            text = "say a number."
        elif abs(int(guess[0]) - secret) <= CLOSE:
            return True
        else:
            text = "higher." if int(guess[0]) < secret else "lower."
    return False


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        sys.exit(0 if play(json.load(file)["secret"]) else 1)
