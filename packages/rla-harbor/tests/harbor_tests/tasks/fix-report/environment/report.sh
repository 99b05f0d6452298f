#!/bin/bash
total=0
while IFS=, read -r item count; do
  total=$count
done < <(tail -n +2 /app/sales.csv)
echo "$total"
