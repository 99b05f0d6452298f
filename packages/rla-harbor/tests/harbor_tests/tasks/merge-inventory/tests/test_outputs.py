import json
import os
import subprocess
import sys
from pathlib import Path

PLACE = Path("/workspace")
CODE = """
import json, sys
from shop.merge import merge
one, other = json.loads(sys.argv[1])
print(json.dumps([merge(one, other), one, other]))
"""


def test_it_adds_and_changes_neither():
    one, other = {"a": 1, "b": 2}, {"b": 3}
    done = subprocess.run(
        [sys.executable, "-c", CODE, json.dumps([one, other])], cwd=PLACE, capture_output=True, check=True
    )
    assert json.loads(done.stdout) == [{"a": 1, "b": 5}, one, other]


def test_the_program_writes_the_sum():
    assert os.environ["EXPECTED_SHOPS"] == "2"
    subprocess.run([sys.executable, "-m", "shop"], cwd=PLACE, check=True)
    text = (PLACE / "merged.json").read_text()
    assert json.loads(text) == {"glue": 1, "nails": 8, "tape": 4}
    assert list(json.loads(text)) == ["glue", "nails", "tape"]
