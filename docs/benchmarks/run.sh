#!/usr/bin/env bash
# Runs every mode of bin/warren-perf on one and on three nodes and appends the
# JSON lines to docs/benchmarks/results/latest.jsonl, or to $OUT.
# DURATION (default 10s) is the measured time of each run.
set -euo pipefail
cd "$(dirname "$0")/../.."
OUT=${OUT:-docs/benchmarks/results/latest.jsonl}
DURATION=${DURATION:-10s}
mkdir -p "$(dirname "$OUT")"

perf() { bin/warren-perf "$@" --start bin/warren --duration "$DURATION" --out "$OUT"; }

for nodes in 1 3; do
  perf throughput --nodes "$nodes" --publishers 4 --consumers 4
  perf throughput --nodes "$nodes"
  perf throughput --nodes "$nodes" --queues 10 --publishers 10 --consumers 10
  perf throughput --nodes "$nodes" --publishers 4 --consumers 4 --size 100
  perf throughput --nodes "$nodes" --publishers 4 --consumers 4 --size 16384
  perf latency --nodes "$nodes" --rate 1000
  perf deadletter --nodes "$nodes" --preload 100000
  perf deadletter --nodes "$nodes" --rate 5000
  perf deadletter --nodes "$nodes" --rate 5000 --via ttl
  perf backlog --nodes "$nodes" --messages 100000
done
for _ in 1 2 3; do
  perf failover --nodes 3 --rate 1000
done
