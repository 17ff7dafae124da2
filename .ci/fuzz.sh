#!/usr/bin/env bash
# Explores every fuzz target at random for a short time each: fuzz.sh 10s
#
# What is found is reported and does not fail the run: whether an old fault is met is luck, not a property of the change. The gate
# is `go test`, which tries each target's property on committed inputs and on mutations of them with a fixed seed. A target
# that does not build, or stops without an input, does fail.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-10s}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
found=0
for pkg in $(go list ./...); do
  dir=$(go list -f '{{.Dir}}' "$pkg")
  for target in $(grep -hoE '^func Fuzz[A-Za-z0-9_]+' "$dir"/*_test.go 2>/dev/null | sed 's/func //' || true); do
    echo "--- fuzz $pkg $target"
    if go test -run '^$' -fuzz "^${target}\$" -fuzztime "$time" "$pkg" 2>&1 | tee "$log"; then
      continue
    fi
    input=$(sed -n 's/^ *Failing input written to \(testdata.*\)$/\1/p' "$log")
    [ -n "$input" ] || exit 1
    found=$((found + 1))
    input=${dir#"$PWD"/}/$input
    printf '\n!!!!!! FOUND: %s fails on an input. In hex, of the file %s:\n' "$target" "$input"
    od -An -v -tx1 "$input" | tr -d ' \n'
    printf '\n!!!!!! Mend the fault, and commit the input as a test:\n'
    printf "mkdir -p %s && base64 -d > %s <<< '%s' && git add %s\n\n" "$(dirname "$input")" "$input" "$(base64 -w0 "$input")" "$input"
  done
done
[ "$found" = 0 ] || echo "!!!!!! $found FINDINGS, see above; each is a fault to mend, with its input committed"
