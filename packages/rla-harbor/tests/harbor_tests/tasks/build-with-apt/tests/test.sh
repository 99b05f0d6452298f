#!/bin/bash
[ "$(sqlite3 --version)" = "$(cat /app/version.txt)" ] && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt
