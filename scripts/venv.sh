#!/usr/bin/env bash
# Create .venv and install cotenant into it, editable.
# usage: scripts/venv.sh EXTRAS      ("" for users, "dev" for tests)
set -eu
export PIP_DISABLE_PIP_VERSION_CHECK=1

cd "$(dirname "$0")/.."
extras="${1:-}"
venv=.venv

find_python() {
  for candidate in "${PYTHON:-}" python3 python3.13 python3.12 python3.11; do
    [ -n "$candidate" ] && command -v "$candidate" >/dev/null 2>&1 || continue
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      echo "$candidate"
      return 0
    fi
  done
  found="$(python3 --version 2>/dev/null || echo 'no python3')"
  echo "error: cotenant needs Python 3.11 or newer, found $found; install it or set PYTHON=/path/to/python3.11" >&2
  return 1
}

make_venv() {
  if ! "$1" -c 'import ensurepip, venv' 2>/dev/null; then
    # Debian ships venv and ensurepip in a package of its own.
    if command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" = 0 ]; then
      echo "installing python3-venv (this Python has no ensurepip)" >&2
      apt-get update -qq </dev/null >&2 || true
      DEBIAN_FRONTEND=noninteractive apt-get install -y -qq python3-venv </dev/null >&2
    else
      echo "error: this Python cannot make virtual environments; on Debian or Ubuntu run:" >&2
      echo "       sudo apt-get install python3-venv" >&2
      return 1
    fi
  fi
  "$1" -m venv "$venv"
}

if [ -x "$venv/bin/python" ]; then
  if ! "$venv/bin/python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    echo "error: .venv holds a Python older than 3.11; run: make clean-venv" >&2
    exit 1
  fi
else
  python="$(find_python)"
  echo "making $venv with $("$python" --version)" >&2
  make_venv "$python"
fi

target="."
[ -n "$extras" ] && target=".[$extras]"
echo "installing cotenant$([ -n "$extras" ] && echo " with extra $extras") into $venv; the first time this takes minutes" >&2
"$venv/bin/python" -m pip install -q -c constraints.txt -e "$target" </dev/null
