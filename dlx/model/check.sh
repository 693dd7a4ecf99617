#!/usr/bin/env bash
# Checks the move's model with spin: no error as it is, and an error for each rule that is
# left out. Installs spin from Debian's packages if it is not there.
set -euo pipefail
cd "$(dirname "$0")"
if ! command -v spin > /dev/null || ! command -v gcc > /dev/null; then
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends spin gcc libc6-dev > /dev/null
fi
model=$PWD/move.pml
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

# verify K T W FAULT: prints the verdict, leaves it in $errors.
verify() {
  spin "-DK=$1" "-DT=$2" "-DW=$3" "-DFAULT=$4" -a "$model" > spin.out || { cat spin.out; exit 1; }
  gcc -O2 -w -DSAFETY -DCOLLAPSE -o pan pan.c
  ./pan -E -m1000000 -w24 > pan.out
  errors=$(sed -n 's/.*errors: \([0-9]*\).*/\1/p' pan.out)
  if grep -q 'max search depth too small' pan.out || [ -z "$errors" ]; then
    cat pan.out
    exit 1
  fi
  echo "letters $1, targets $2, withdrawals $3, fault $4: $(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' pan.out) states, errors $errors"
}

for size in "2 2 1" "2 2 2" "3 2 0" "2 3 0"; do
  # shellcheck disable=SC2086 # three words
  verify $size 0
  [ "$errors" = 0 ] || { grep -m1 'assertion violated' pan.out; exit 1; }
done
for fault in 1 2 3 4 5 6 7 8 9 10 11; do
  verify 2 2 2 "$fault"
  [ "$errors" != 0 ] || { echo "fault $fault is not found: the model has lost its teeth"; exit 1; }
done
