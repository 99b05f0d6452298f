import json
import sys

print(json.dumps({"reward": 1.0 if sys.argv[1] == "0" else 0.0, "shops": 2}))
