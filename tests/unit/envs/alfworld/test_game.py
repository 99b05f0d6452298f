import json
from pathlib import Path

import pytest

from rla.envs.alfworld.game import Game, Verbs, check_sentence, parse_problem
from rla.envs.alfworld.goals import Goal, TaskKind
from rla.errors import UserError

from . import scenes

TEXT = """
(define (problem plan_1)
(:domain alfred)
(:objects
agent1 - agent
MugType - otype
  Mug_bar_1 - object  Mug_bar_2 - object
  DeskType - rtype
  Desk_bar_1 - receptacle
  loc_bar_1 - location
)
(:init
  (= (total-cost) 0)
  (objectType Mug_bar_1 MugType)
  (atLocation agent1 loc_bar_1)
)
(:goal (and (exists (?r - receptacle) (exists (?o - object)
   (and (inReceptacle ?o ?r) (objectType ?o MugType) (receptacleType ?r DeskType))))))
)
"""
GRAMMAR = """grammar :: \"\"\" {{ "task": [ {{ "rhs": "Your task is to: {sentence}" }} ] }} \"\"\";
action PutObject {{
    template :: "{verb} {{o}} to {{r}}";
}}"""


def write_game(folder: Path, *, sentence: str = "put a mug in desk.", verb: str = "put", text: str = TEXT) -> Path:
    path = folder / "game.tw-pddl"
    grammar = GRAMMAR.format(sentence=sentence, verb=verb)
    path.write_text(json.dumps({"pddl_domain": "", "grammar": grammar, "pddl_problem": text, "solvable": True}))
    return path


def test_a_problem_keeps_casing_and_order() -> None:
    problem = parse_problem(TEXT)
    assert problem.name == "plan_1"
    assert problem.objects[2:4] == (("Mug_bar_1", "object"), ("Mug_bar_2", "object"))
    assert problem.facts == (("objectType", "Mug_bar_1", "MugType"), ("atLocation", "agent1", "loc_bar_1"))
    assert problem.goal == Goal(TaskKind.PLACE, "Mug", "Desk")


@pytest.mark.parametrize("kind", TaskKind)
def test_every_goal_survives_writing_and_reading(kind: TaskKind) -> None:
    target = "DeskLamp" if kind is TaskKind.LOOK else "SideTable"
    problem = scenes.problem(Goal(kind, "Mug", target))
    assert parse_problem(problem.pddl()) == problem


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("(:domain alfred)", "(:domain logistics)", "sections"),
        ("(inReceptacle ?o ?r)", "(not (inReceptacle ?o ?r))", "goal"),
        ("(atLocation agent1 loc_bar_1)", "(atLocation agent1 loc_bar_7)", "loc_bar_7"),
        ("(atLocation agent1 loc_bar_1)", "(not (atLocation agent1 loc_bar_1))", "ground facts"),
        ("(atLocation agent1 loc_bar_1)", "(atLocation agent1 loc_bar_1) stray", "ground facts"),
        ("Desk_bar_1 - receptacle", "Desk_bar_1 - furniture", "objects section"),
        ("Desk_bar_1 - receptacle", "Desk{1} - receptacle", "objects section"),
        ("))))))\n)", "))))))", "goal"),
    ],
)
def test_anything_else_is_refused_with_the_reason(old: str, new: str, reason: str) -> None:
    assert old in TEXT
    with pytest.raises(UserError, match=rf"not an ALFWorld problem.*{reason}"):
        parse_problem(TEXT.replace(old, new))


def test_a_name_that_could_change_the_pddl_is_not_written() -> None:
    problem = scenes.problem(Goal(TaskKind.PLACE, "Mug) (evil", "Desk"))
    with pytest.raises(UserError, match="cannot be a name"):
        problem.pddl()


def test_a_game_file_tells_its_sentence_and_its_verbs(tmp_path: Path) -> None:
    older = Game.load(write_game(tmp_path))
    assert older == Game(problem=parse_problem(TEXT), sentence="put a mug in desk.", verbs=Verbs.PUT)
    assert Game.load(write_game(tmp_path, verb="move")).verbs is Verbs.MOVE


def test_a_file_that_is_no_game_is_named(tmp_path: Path) -> None:
    path = tmp_path / "game.tw-pddl"
    with pytest.raises(UserError, match=r"game\.tw-pddl: cannot be read"):
        Game.load(path)
    path.write_text("(define")
    with pytest.raises(UserError, match=r"game\.tw-pddl: .*not JSON"):
        Game.load(path)
    path.write_text("[]")
    with pytest.raises(UserError, match=r"game\.tw-pddl: .*not JSON with grammar"):
        Game.load(path)
    with pytest.raises(UserError, match=r"game\.tw-pddl: .*sections"):
        Game.load(write_game(tmp_path, text="(define"))


@pytest.mark.parametrize("sentence", ["put {1+1} mug.", "put #task# mug.", 'say "mug".', "put\nmug.", "", "Put"])
def test_a_sentence_that_textworld_would_run_or_cut_is_refused(sentence: str) -> None:
    with pytest.raises(UserError, match="task sentence"):
        check_sentence(sentence)
