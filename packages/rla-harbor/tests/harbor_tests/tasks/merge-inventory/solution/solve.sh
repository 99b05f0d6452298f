#!/bin/bash
cat > /workspace/shop/merge.py <<'PY'
def merge(one, other):
    return {name: one.get(name, 0) + other.get(name, 0) for name in sorted({*one, *other})}
PY
cat > /workspace/shop/__main__.py <<'PY'
import json
from pathlib import Path

from shop.merge import merge

shops = [json.loads(Path(name).read_text()) for name in ("north.json", "south.json")]
Path("merged.json").write_text(json.dumps(merge(*shops)))
PY
