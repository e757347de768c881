# Sourced by scripts/quickstart and scripts/test: a virtual environment with memos in it, from nothing but Python.
# Knows Python and pip; knows nothing of what runs afterwards. Read from the environment:
#   PYTHON      the interpreter to make it with (default: python3)
#   MEMOS_VENV  where it lies (default: .venv in the checkout)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
VENV=${MEMOS_VENV:-$PWD/.venv}
# what is imported is compiled once: some images set this, and each process would compile thousands of modules again
unset PYTHONDONTWRITEBYTECODE

say() { printf '\n== %s\n' "$*"; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

make_venv() {
  "$VENV/bin/python" -m pip --version >/dev/null 2>&1 && return
  local python=${PYTHON:-python3}
  command -v "$python" >/dev/null ||
    die "no $python on the PATH; memos needs Python 3.10 or newer: install it, or set PYTHON=/path/to/python3"
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
    die "$python is $("$python" --version 2>&1); memos needs Python 3.10 or newer: set PYTHON=/path/to/a/newer/python3"
  "$python" -c 'import venv, ensurepip' 2>/dev/null ||
    die "$python comes without venv, which memos is installed into; on Debian or Ubuntu: apt install python3-venv"
  say "making a virtual environment in $VENV ($("$python" --version))"
  local clear=
  [ -f "$VENV/pyvenv.cfg" ] && clear=--clear # one that an interrupted run left, or whose Python is gone; nothing else
  "$python" -m venv $clear "$VENV"
}

# install EXTRAS: memos and its dependencies, `dev` or what requirements.txt has; returns at once where nothing has
# changed since
install() {
  local stamp now
  now=$(cat <(pwd) pyproject.toml requirements*.txt | cksum)
  for stamp in "$VENV/.memos-$1" "$VENV/.memos-dev"; do
    [ "$(cat "$stamp" 2>/dev/null)" = "$now" ] && return
  done
  # --no-compile: of the thousands of modules few are ever imported, and those are compiled then
  pip() { "$VENV/bin/python" -m pip --quiet --disable-pip-version-check "$@"; }
  # torch by itself and first: it is the largest, and on a machine without a GPU it may come from an index of CPU builds,
  # so there is no hash of it
  say "installing torch (200 MB for CPU builds, several GB for CUDA builds)"
  pip install --no-compile --no-deps "$(grep -om1 'torch==[0-9.]*' pyproject.toml)"
  local pinned=requirements.txt
  [ "$1" = dev ] && pinned=requirements-dev.txt
  say "installing memos[$1] with the versions of $pinned, each file held against its hash"
  pip install --no-compile --no-deps --require-hashes -r $pinned
  pip install --no-compile --no-build-isolation -e ".[$1]" # CUDA's libraries too, where torch asks for them
  echo "$now" >"$VENV/.memos-$1"
}

make_venv
