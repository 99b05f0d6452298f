#!/bin/bash
if diff <(echo 9c4d18b2e7f0) /srv/answer/token.txt; then
  echo 1 > /logs/verifier/reward.txt
else
  echo 0 > /logs/verifier/reward.txt
fi
