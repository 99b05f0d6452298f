"""docs/results/gpu.md, from the committed record: `python -m study_tests.gpu_check.page [RECORD ...]`.

Records of checks that are given, earlier ones first, become part of the committed one.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from docs.generate.markdown import page, table
from study_tests.gpu_check.record import PARTS, Record, merged

RESULTS = Path(__file__).parents[5] / "docs/results"
PAGE, COMMITTED = RESULTS / "gpu.md", RESULTS / "records/gpu.json.gz"
HEAD = """What only a GPU can tell, measured in ten minutes by `make gpu-check`. This page is made of its record
([how](../guide/install.md#the-check-on-a-gpu))."""
NONE = """No records exist yet: no machine with a GPU was at hand since the check was written. What was measured on one
before is in [benchmarks](benchmarks.md#the-small-runs-on-one-gpu)."""
KEPT = "Record: [`records/gpu.json.gz`](records/gpu.json.gz)."
SAID = {
    "tests": """## Tests of packed attention

`tests/gpu`: packed segments in fp32, and through FlashAttention in bf16, against the CPU.""",
    "training": """## Training

Random weights, trajectories of 2,048 to 4,096 random tokens, the faster of two optimizer steps, with gradient
checkpointing unless the row says otherwise. The share is that of the rate that bf16 matrix products reach on the same
card; what checkpointing computes a second time does not count.""",
    "generation": """## Generation with `transformers`

Random weights in bf16, all requests at once, sampled at temperature 1.""",
    "logprobs": """## Sampler against trainer

|difference| of the log-probability of a sampled token. The trainer's weights are fp32 in every row; in bf16 it computes
under autocast.""",
    "loop": """## SmolLM2-135M

Built-in household tasks, one seed. Both arms go on from one warm start, side by side on the same card, and are compared
at equal time. Success in % of held-out episodes, with its 95% interval, clustered by task.""",
}
# Tables of a part: columns, and their cells as formats of a row. A row belongs to the tables of which it fills the last
# column, and a row with a reason to the first.
KINDS = "matrix products", "attention", "copies and casts", "elementwise and norms", "optimizer"
TABLES = {
    "tests": [("passed | failed | skipped", "{passed} | {failed} | {skipped}")],
    "training": [
        (
            "shape | trains | rows | tokens a second | peak GiB | share of the matrix rate",
            "{shape} | {trains} | {rows} | {tokens_per_second:,.0f} | {peak_gib} | {flop_utilisation:.1%}",
        ),
        ("matrix products in | TFLOP/s", "{precision} | {tflops:,.0f}"),
        (
            f"shape | trains | {' | '.join(KINDS)} | device idle",
            f"{{shape}} | {{trains}} | {' | '.join(f'{{parts[{kind}]:.1%}}' for kind in KINDS)} | {{parts[idle]:.1%}}",
        ),
    ],
    "generation": [
        (
            "shape | requests | prompt tokens a second | peak GiB | ms a pass | reply tokens a second",
            "{shape} | {sequences} of {prompt} + {reply} tokens | {prompt_tokens_per_second:,} | {peak_gib} | "
            "{ms_per_pass} | {reply_tokens_per_second:,}",
        )
    ],
    "logprobs": [
        (
            "model | sampler | trainer | tokens | mean | largest",
            "{model} | {sampler} | {trainer} | {tokens:,} | {mean_gap} | {largest_gap}",
        )
    ],
    "loop": [
        (
            "arm | iterations | change | success",
            "{arm} | {iterations} | {change:+.1f} [{change_low:+.1f}, {change_high:+.1f}] | "
            "{success:.1f} [{success_low:.1f}, {success_high:.1f}]",
        ),
        ("arm | iteration | seconds | episodes | won", "{arm} | {iteration} | {total:.0f} | {episodes} | {won:.1f} %"),
    ],
}


def cell(form: str, row: Mapping[str, Any]) -> str:
    """Empty if the row has nothing for it."""
    try:
        return form.format_map(row)
    except KeyError:
        return ""


def tables(name: str, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    found = []
    for number, (columns, cells) in enumerate(TABLES[name]):
        head, forms = columns.split(" | "), cells.split(" | ")
        own = [row for row in rows if cell(forms[-1], row) or ("reason" in row and not number)]
        if any("reason" in row for row in own):
            head, forms = [*head, "remark"], [*forms, "{reason}"]
        if own:
            found.append(table(head, ([cell(form, row) for form in forms] for row in own)))
    return found


def part_of(name: str, part: Mapping[str, Any]) -> str:
    """The section of one part."""
    about = ", ".join(f"{key} {value}" for key, value in part["machine"].items() if key not in ("device", "when"))
    lines = [SAID[name], f"{part['machine'].get('device')} ({about}), {part['machine'].get('when')}."]
    if part["state"] != "done":
        lines.append(f"The part was {part['state']}: {part['reason']}.")
    return "\n\n".join([*lines, *tables(name, part["rows"])])


def text_of(record: Record) -> str:
    if not record:
        return page("On a GPU", HEAD, NONE)
    return page("On a GPU", HEAD, KEPT, *(part_of(name, record[name]) for name in PARTS if name in record))


def committed() -> Record:
    """Empty if there is none."""
    return json.loads(gzip.decompress(COMMITTED.read_bytes())) if COMMITTED.exists() else {}


def main(files: Sequence[str]) -> None:
    record = merged([committed(), *(json.loads(Path(file).read_text()) for file in files)])
    if files:
        COMMITTED.write_bytes(gzip.compress(json.dumps(record).encode(), mtime=0))
    PAGE.write_text(text_of(record))


if __name__ == "__main__":
    main(sys.argv[1:])
