#!/usr/bin/env bash
# Makes the Python environment of the outside oracles and prints its path.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=${MEMOC_VENV:-$PWD/.venv}
stamp="$venv/.requirements"
if ! cmp -s .ci/requirements.txt "$stamp" 2>/dev/null; then
  python3 -m venv "$venv"
  "$venv/bin/pip" install -q --disable-pip-version-check -r .ci/requirements.txt >&2
  cp .ci/requirements.txt "$stamp"
fi
echo "$venv"
