#!/usr/bin/env bash
# Brings a fresh Debian machine with Python 3.11 to the point where everything runs: .venv, packages, Java.
# Where something is missing and may not be installed, it says exactly what to do.
set -euo pipefail

python=${PYTHON:-python3}
venv=${VENV:-.venv}
java_needed=17

say() { printf 'setup: %s\n' "$*"; }
stop() { printf 'setup: %s\n' "$*" >&2; exit 1; }

may_install() { command -v apt-get >/dev/null && { [ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null; }; }

# install PACKAGE... : from the distribution, quietly; the log is shown only when it fails.
install() {
  local as_root=() log
  [ "$(id -u)" = 0 ] || as_root=(sudo -n)
  log=$(mktemp)
  say "installing $* from the distribution"
  if ! { "${as_root[@]}" apt-get update -qq && \
         "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"; } >"$log" 2>&1
  then
    tail -n 20 "$log" >&2
    stop "could not install $*; install it by hand and run the command again"
  fi
  rm -f "$log"
}

command -v "$python" >/dev/null || stop "no $python found; install Python 3.11 or newer"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || stop "$("$python" --version) is too old; Python 3.11 or newer is needed"

if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
  may_install || stop "Python's venv module is missing; install it: apt-get install python3-venv"
  install python3-venv
fi

java_version() {
  { java -version 2>&1 || true; } | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1
}
version=$(java_version)
if [ "${version:-0}" -lt "$java_needed" ]; then
  may_install || stop "Java $java_needed or newer is needed by Spark (found: ${version:-none}); install it: apt-get install default-jre-headless"
  install default-jre-headless
  version=$(java_version)
  [ "${version:-0}" -ge "$java_needed" ] || stop "the distribution's Java is ${version:-missing}, $java_needed or newer is needed; set PATH to a newer one"
fi

if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
  say "creating $venv"
  "$python" -m venv --clear "$venv"
fi
say "installing Python packages, pinned in constraints.txt (Spark alone is 400 MB: a few minutes)"
# No warnings: the pip of Debian 12 has one about how Spark is packaged, which nobody here can do anything about.
"$venv/bin/python" -W ignore -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[all,dev]'
# As pip does with what it copies: our own code would be compiled anew at each start where Python may not write.
"$venv/bin/python" -m compileall -q src
say "ready: $("$venv/bin/python" --version), Java $version, $("$venv/bin/inkgrove" --version)"
