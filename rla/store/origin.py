"""What an output is made from: digests by which it is known again, and the parameters that a reader can name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rla.config.load import differences_text, parameter_differences, shown_value
from rla.store.sizes import counted

PARAMETERS = "parameters"  # key of a record: what its `config_digest` was made of


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """What an output is made from: equal origins make equal outputs.

    `parameters`: what the digest `config` covers; empty where that is unknown. `folders`: the input of each digest of
    `inputs`, as this call names it; no record holds them, because a run may be moved.
    """

    config: str
    inputs: Mapping[str, str]
    seed: int
    parameters: Mapping[str, Any] = field(default_factory=dict, compare=False)
    folders: Mapping[str, str] = field(default_factory=dict, compare=False)

    def as_json(self) -> dict[str, Any]:
        """What identifies it: two outputs of the same are equal."""
        return {"config_digest": self.config, "input_digests": dict(self.inputs), "seed": self.seed}

    def named(self) -> dict[str, Any]:
        """What a record says beside `as_json`. No record is compared by it."""
        return {PARAMETERS: dict(self.parameters)} if self.parameters else {}

    def unlike(self, record: Mapping[str, Any]) -> str:
        """How an output differs that has this record."""
        return unlike_text(record, self.as_json() | self.named(), folders=self.folders)


def unlike_text(record: Any, made_from: Mapping[str, Any], *, folders: Mapping[str, str] | None = None) -> str:
    """How an output with this record differs from one of `made_from`: which parameters, which inputs.

    Both hold what `as_json` and `named` give, as far as they have it. `folders`: the inputs of `made_from`, by name.
    """
    found = record if isinstance(record, Mapping) else {}
    pieces = []
    if any(found.get(key) != made_from.get(key) for key in ("config_digest", "seed")):
        pieces.append(f"made with {parameters_unlike(found, made_from)}")
    inputs = (record.get("input_digests") for record in (found, made_from))
    before, now = (each if isinstance(each, Mapping) else {} for each in inputs)
    if before != now:
        pieces.append(inputs_unlike(before, now, folders or {}))
    return "; ".join(pieces) or "made from something else"


def parameters_unlike(found: Mapping[str, Any], made_from: Mapping[str, Any]) -> str:
    said, own = found.get(PARAMETERS), made_from.get(PARAMETERS)
    if isinstance(said, Mapping) and own and (differing := parameter_differences(said, own)):
        return differences_text(differing)
    for key in ("config_digest", "seed"):  # one of the two names no parameters
        if found.get(key) != made_from.get(key):
            text = f"{shown_value(found.get(key))}, this call has {shown_value(made_from.get(key))}"
            return f"seed {text}" if key == "seed" else f"another config_digest ({text})"
    return "other parameters"


def inputs_unlike(before: Mapping[str, Any], now: Mapping[str, Any], folders: Mapping[str, str]) -> str:
    named = {key: folders.get(key, f"input {key}") for key in now}
    changed = [named[key] for key, value in now.items() if before.get(key, value) != value]
    added = [folder for key, folder in named.items() if key not in before]
    texts = [f"made from another {' and '.join(changed)} than lies there now"] if changed else []
    texts += [f"made without {' and '.join(added)}"] if added else []
    more = len(before.keys() - now.keys())
    return "; ".join(texts + ([f"made from {counted(more, 'more input')}"] if more else []))
