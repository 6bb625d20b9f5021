#!/usr/bin/env bash
# Creates .venv from requirements.lock: every package by version and hash, then this package itself, editable.
set -euo pipefail
cd "$(dirname "$0")/.."

python=""
for candidate in "${PYTHON:-python3}" python3.13 python3.12 python3.11; do
  if "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; then
    python="$candidate"
    break
  fi
done
if [ -z "$python" ]; then
  echo "Python 3.11 to 3.13 was not found: install it, or name it with PYTHON=/path/to/python3" >&2
  exit 1
fi
if ! "$python" -c 'import ensurepip' 2>/dev/null; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq python3-venv
  else
    echo "Python lacks venv: install it with: sudo apt-get install -y python3-venv" >&2
    exit 1
  fi
fi

echo "Creating .venv with $("$python" --version): the first time takes a minute …"
"$python" -m venv .venv
.venv/bin/python tools/install.py requirements.lock
touch .venv/.complete
