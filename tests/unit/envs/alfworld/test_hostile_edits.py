"""Whatever a language model proposes: a reason why not, or a game whose names are all the scene's or the catalogue's.

Here `apply` is asked, the one door by which a text of a model comes to a task.
"""

import json
import re
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rla.config.sections import TasksConfig
from rla.envs.alfworld.catalog import TYPES
from rla.envs.alfworld.edits import MAX_TEXT
from rla.envs.alfworld.environment import Alfworld
from rla.envs.alfworld.game import Layout, game_of
from rla.envs.alfworld.goals import HINT_STARTS, Hint, TaskKind
from rla.envs.alfworld.tasks import builtin_tasks
from rla.envs.protocols import RejectedEdit
from rla.store.records import Task

from . import scenes

ALFWORLD = Alfworld()
TASK = scenes.drawn(TaskKind.CLEAN, "kitchen")
GAME = game_of(TASK.payload)
NAMES = sorted({name for name in re.findall(r'"([a-z]+ \d+)"', json.dumps(ALFWORLD.proposal_prompt().schema(TASK)))})
SECONDS = 5.0  # of one proposal, on a busy machine

ATTACKS = (
    "mug 1) (isClean mug_1",  # PDDL
    "(:goal (and))",
    "Mug)) (forall (?x) (won ?x",
    "mug .*",  # regular expressions
    "(a+)+$",
    "\\d \\1",
    "../../../etc/passwd",  # paths
    "mug/../desk 1",
    "/dev/null",
    "mug 1; rm -rf /",  # shells
    "$(reboot)",
    "`id` 1",
    "<|im_end|>\n<|im_start|>system",  # chat control tokens
    "[INST] mug 1 [/INST]",
    "</s>",
    "{0.__class__} 1",  # format strings
    "%s %n",
    "\u043cug 1",  # a Cyrillic letter, full-width, superscript and Arabic digits, a zero-width space
    "mug \uff11",
    "mug \u00b9",
    "mug \u0661",
    "mug\u200b 1",
    "MUG 1",
    "mug  1",
    "mug 01",
    "mug 1\n",
    " mug 1",
    "mug 1\x00",
    "\ud800",  # half a surrogate pair
    "",
    "mug 100",
    "agent1 1",
    "Mug Type",
    "MugType",
    "__proto__",
)
known = st.sampled_from([*NAMES, *sorted(TYPES)])
values = st.one_of(
    known,
    st.sampled_from(ATTACKS),
    st.integers(-(10**30), 10**30),
    st.floats(),
    st.booleans(),
    st.none(),
    st.lists(known, max_size=2),
    st.dictionaries(known, known, max_size=2),
)
names, types = st.sampled_from(NAMES) | values, st.sampled_from(sorted(TYPES)) | values


def some(entry: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.lists(entry, max_size=9) | values


shaped = st.fixed_dictionaries(
    {},
    optional={
        "goal": st.fixed_dictionaries(
            {"kind": st.sampled_from([*TaskKind]) | values, "object_type": types, "target_type": types}
        )
        | values,
        "move": some(st.fixed_dictionaries({"object": names, "to": names}) | values),
        "add": some(st.fixed_dictionaries({"object_type": types, "to": names, "count": st.integers(0, 5) | values})),
        "remove": some(st.fixed_dictionaries({"object": names}) | values),
        "hint": st.sampled_from([*Hint]) | values,
        "note": values,
    },
)
texts = st.one_of(
    shaped.map(json.dumps),
    st.recursive(values, lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=5), inner)).map(json.dumps),
    st.text(),
    st.tuples(shaped.map(json.dumps), st.integers(0, 200)).map(lambda pair: pair[0][: pair[1]]),
)


def applied(text: str) -> Task | None:
    """The child, or nothing where the edit was refused with a reason that quotes none of it."""
    started = time.monotonic()
    try:
        return ALFWORLD.apply(TASK, text, root=TASK, taken={TASK.task_id}, created=1)
    except RejectedEdit as refused:
        assert str(refused)
        assert not any(attack in str(refused) for attack in ATTACKS if len(attack) > 2)
        return None
    finally:
        assert time.monotonic() - started < SECONDS


def tokens(text: str) -> set[str]:
    return set(re.findall(r"[^\s()]+", text))


@settings(max_examples=250)
@given(texts)
@example('{"hint": NaN}')
@example('{"add": [{"object_type": "Mug", "to": "countertop 1", "count": Infinity}]}')
@example('{"add": [{"object_type": "Mug", "to": "countertop 1", "count": 1e0}]}')
@example('{"hint": "where", "hint": "how"}')
@example('{"goal": {"kind": "pick_and_place_simple", "kind": 1, "object_type": "Mug", "target_type": "Desk"}}')
@example("[" * MAX_TEXT)
@example('{"move":' * 400 + "1" + "}" * 400)
@example('{"hint": ' + "9" * (MAX_TEXT - 20) + "}")
@example('{"hint": "' + "a" * 10**6 + '"}')
@example('{"hint": "\\ud800"}')
@example("\ufeff{}")
def test_whatever_is_proposed_only_known_names_come_into_a_game(text: str) -> None:
    child = applied(text)
    if child is not None:
        assert_only_known_names(child)


def assert_only_known_names(child: Task) -> None:
    game, before = game_of(child.payload), {name for name, _ in GAME.problem.objects}
    problem = json.loads(child.payload)["problem"]
    fresh = {name for name, kind in game.problem.objects if name not in before and kind == "object"}
    assert all(re.fullmatch(r"[A-Za-z]+(_(bar|minus|plus|dot)_\d*|\d)*", name) for name in fresh), fresh
    assert {re.match(r"[A-Za-z]+", name)[0] for name in fresh} <= TYPES  # type: ignore[index]
    typed = {f"{name}Type" for name in TYPES}
    new = tokens(problem) - tokens(json.loads(TASK.payload)["problem"])
    assert new - fresh - typed <= WORDS
    wordings = [game.problem.goal.sentence(variant) for variant in (0, 1)]
    told, hint = child.instruction, Hint.of(child.instruction)
    assert told in wordings or (hint is not Hint.NONE and any(told.startswith(f"{wording} ") for wording in wordings))
    assert re.fullmatch(r"[a-z0-9 ,.]+", told)
    assert json.loads(child.edit or "") and child.plan_length


# Predicates, keywords and types of other games: tokens without a number.
WORDS = {
    token
    for task in builtin_tasks(TasksConfig(train_scenes=12, tasks_per_scene=2, size="small"), seed=1)
    for token in tokens(json.loads(task.payload)["problem"])
    if not re.search(r"\d", token)
}


def test_edits_in_the_scenes_own_names_are_games_or_refused() -> None:
    places = {kind.lower() for kind in Layout.of(GAME.problem).receptacles.values()}
    children = [
        applied(json.dumps({"add": [{"object_type": kind, "to": name, "count": 1}]}))
        for name in NAMES
        for kind in ("Mug", "Pillow")
        if name.split()[0] in places
    ]
    assert 0 < sum(child is None for child in children) < len(children)
    for child in filter(None, children):
        assert_only_known_names(child)


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_in_the_place_of_a_name_is_refused(attack: str) -> None:
    goal = {"kind": "pick_and_place_simple", "object_type": attack, "target_type": "CounterTop"}
    for edit in (
        {"goal": goal},
        {"goal": {**goal, "object_type": "Mug", "target_type": attack}},
        {"goal": {**goal, "kind": attack, "object_type": "Mug"}},
        {"move": [{"object": attack, "to": "countertop 1"}]},
        {"move": [{"object": "mug 1", "to": attack}]},
        {"add": [{"object_type": attack, "to": "countertop 1", "count": 1}]},
        {"remove": [{"object": attack}]},
        {"hint": attack},
        {attack: "where"},
    ):
        assert applied(json.dumps(edit)) is None
        assert applied(json.dumps(edit, ensure_ascii="\ud800" in attack)) is None


def test_a_hint_says_nothing_but_what_is_rendered() -> None:
    child = applied('{"hint": "where_and_how"}')
    assert child is not None
    assert all(f" {start} " in child.instruction for start in HINT_STARTS.values())
