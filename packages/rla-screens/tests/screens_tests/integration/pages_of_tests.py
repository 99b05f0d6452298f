"""Pages in the form of MiniWoB++ that tests write into a folder of their own, hostile ones among them."""

from __future__ import annotations

from pathlib import Path

PAGE = """<!DOCTYPE html><html><head>{head}<script>
var WOB_DONE_GLOBAL = false, WOB_RAW_REWARD_GLOBAL = 0, WOB_TASK_READY = true, asked = 'Press "Go".';
Math.seedrandom = function (seed) {{ window.luck = seed; }};
var core = {{
  startEpisodeReal: function () {{
    WOB_DONE_GLOBAL = false; WOB_RAW_REWARD_GLOBAL = 0;
    document.getElementById('go').onclick = function () {{ WOB_RAW_REWARD_GLOBAL = 1; WOB_DONE_GLOBAL = true; }};
    document.getElementById('evil').onclick = function () {{ {click} }};
    document.getElementById('seed').textContent = 'seed ' + window.luck;
    {start}
  }},
  getUtterance: function () {{ return asked; }}
}};
</script></head><body><div id="area"><p id="seed"></p><button id="evil">Evil</button><button id="go">Go</button>
{body}</div></body></html>"""


def write_page(folder: Path, name: str, *, head: str = "", click: str = "", start: str = "", body: str = "") -> None:
    """A page with two buttons: `Evil` runs `click`, and `Go` wins. `start` runs as an episode begins."""
    (folder / "miniwob").mkdir(exist_ok=True, parents=True)
    text = PAGE.format(head=head, click=click, start=start, body=body)
    (folder / "miniwob" / f"{name}.html").write_text(text, encoding="utf-8")
