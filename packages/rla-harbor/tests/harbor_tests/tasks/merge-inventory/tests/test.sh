#!/bin/bash
pytest -q -rA /tests/test_outputs.py
python3 /tests/reward.py "$?" > /logs/verifier/reward.json
