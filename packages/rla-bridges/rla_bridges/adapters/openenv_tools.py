"""OpenEnv servers whose actions are tool calls (MCP). The tools are listed once an episode has begun.

An action is the name of a tool followed by its arguments, written as in `openenv_actions` for the tool's own schema:
`add a=1 b=2`, `echo any text`. A JSON object {"tool_name": ..., "arguments": {...}} is accepted as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rla.envs.observation import EnvironmentFailure
from rla.errors import UserError
from rla_bridges.adapters.openenv_actions import (
    SHOWN,
    ActionForm,
    Unreadable,
    checked_fields,
    form_of,
    object_action,
    read_action,
    usage,
)
from rla_bridges.adapters.openenv_client import Json
from rla_bridges.adapters.openenv_reading import line_of, text_at

TITLES = ("CallToolAction", "ListToolsAction")
LIST = {"type": "list_tools"}
MOST_TOOLS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTool:
    """A tool that a server offers, with the form of its arguments."""

    name: str
    about: str
    form: ActionForm


def calls_tools(schema: Json) -> bool:
    """Whether a server's actions are tool calls."""
    bare = schema.get("title") == "Action" and set(schema["properties"]) <= {"metadata"}
    return bare or schema.get("title") in TITLES


def tools_of(observation: Json) -> dict[str, ServerTool]:
    """The tools in a server's list, by name. Raises EnvironmentFailure if the list is invalid."""
    found = observation.get("tools")
    if not isinstance(found, list) or not found or len(found) > MOST_TOOLS:
        raise EnvironmentFailure(f"the server lists no tools, or more than {MOST_TOOLS}")
    return {tool.name: tool for tool in map(_tool, found)}


def _tool(given: Any) -> ServerTool:
    name = text_at(given, "name")
    schema = given.get("input_schema") if isinstance(given, Mapping) else None
    if not name or name.split() != [name] or not isinstance(schema, dict):
        raise EnvironmentFailure("the server lists a tool without a name of one word or without a schema")
    try:
        form = form_of({"properties": {}} | schema)
    except UserError as error:
        raise EnvironmentFailure(f"tool {name[:SHOWN]}: {error}") from None
    return ServerTool(name=name, about=line_of(given.get("description")), form=form)


def told_tools(tools: Mapping[str, ServerTool]) -> str:
    """The tools as lines for the policy."""
    lines = (" ".join(part for part in (tool.name, usage(tool.form)) if part) for tool in tools.values())
    abouts = (f" ({tool.about})" if tool.about else "" for tool in tools.values())
    return "Tools:\n" + "\n".join(line + about for line, about in zip(lines, abouts, strict=True))


def read_call(text: str, tools: Mapping[str, ServerTool]) -> dict[str, Any]:
    """The action that calls a tool. Raises Unreadable."""
    found = object_action(text)
    if found is not None:
        name, arguments = found.get("tool_name", found.get("name")), found.get("arguments", {})
        if not isinstance(name, str) or not isinstance(arguments, dict):
            raise Unreadable("the JSON object must have tool_name, a text, and arguments, an object")
        return {
            "type": "call_tool",
            "tool_name": name,
            "arguments": checked_fields(arguments, _known(name, tools).form),
        }
    name, _, rest = text.strip().partition(" ")
    form = _known(name, tools).form
    return {"type": "call_tool", "tool_name": name, "arguments": read_action(rest, form) if form.fields else {}}


def _known(name: str, tools: Mapping[str, ServerTool]) -> ServerTool:
    if name not in tools:
        raise Unreadable(f"there is no tool {name[:SHOWN]!r}; there are {', '.join(list(tools)[:20])}"[:1000])
    return tools[name]


def call_text(observation: Json) -> str | None:
    """The text that a tool returned; None if the observation does not come from a tool."""
    result, error = observation.get("result"), observation.get("error")
    if error is not None:
        return f"error: {text_at(error, 'message')}"
    content = result.get("content") if isinstance(result, Mapping) else None
    texts = [text_at(part, "text") for part in content] if isinstance(content, list) else []
    return "\n".join(texts) if any(texts) else None
