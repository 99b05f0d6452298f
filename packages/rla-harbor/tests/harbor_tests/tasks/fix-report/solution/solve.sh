#!/bin/bash
sed -i 's/total=$count/total=$((total + count))/' /app/report.sh
