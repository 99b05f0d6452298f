#!/bin/bash
# Other rows than those of the task, so that a printed constant fails.
mkdir -p /logs/verifier
reward=0
if [ "$(bash /app/report.sh)" = 49 ]; then
  cp /app/sales.csv /tmp/kept.csv
  printf 'item,count\nnuts,5\nkale,6\n' > /app/sales.csv
  [ "$(bash /app/report.sh)" = 11 ] && reward=1
  cp /tmp/kept.csv /app/sales.csv
fi
echo "$reward" > /logs/verifier/reward.txt
