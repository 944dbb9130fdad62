# setup.sh - sourced by the other scripts: installs missing Debian/Ubuntu packages when it may, says
# exactly which when it may not, and builds.

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

build_packages="gcc libc6-dev pkg-config meson ninja-build libdnnl-dev libconfig-dev
  libjansson-dev libdeflate-dev libsodium-dev libhwloc-dev scdoc"
data_packages="dataset-fashion-mnist"
test_packages="libcmocka-dev"

say() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; }

# need PACKAGE... : have them installed, or end with the command that would install them.
need() {
  local missing=() package
  if ! command -v dpkg-query >/dev/null; then
    say "this is not Debian or Ubuntu: install what corresponds to: $*"
    return 0 # Meson says what is really missing
  fi
  for package in "$@"; do
    if [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" != installed ]; then
      missing+=("$package")
    fi
  done
  [ ${#missing[@]} -eq 0 ] && return 0
  local apt=(apt-get)
  if [ "$(id -u)" -ne 0 ]; then
    if ! { command -v sudo && sudo -n true; } >/dev/null 2>&1; then
      say "packages are missing, and installing them needs root:"
      say "  sudo apt-get install ${missing[*]}"
      exit 1
    fi
    apt=(sudo -n apt-get)
  fi
  say "installing ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  "${apt[@]}" update -qq && "${apt[@]}" install -y -qq --no-install-recommends "${missing[@]}" >&2 || {
    say "apt-get could not install: ${missing[*]}"
    exit 1
  }
}

# build FOLDER [meson options...] : configure, or configure again with these options, then build.
build() {
  local folder=$1
  shift
  if [ ! -f "$folder/build.ninja" ]; then
    meson setup "$folder" "$@" || exit 1
  else
    meson configure "$folder" "$@" || exit 1
  fi
  ninja -C "$folder" || exit 1
}

# counts LOG... : the closing line over cmocka's cases in Meson's test logs.
counts() {
  local passed failed skipped
  passed=$(cat "$@" | grep -cE '^\[ +OK \]' || true)
  failed=$(cat "$@" | grep -cE '^\[ +FAILED +\] [^0-9]' || true)
  skipped=$(cat "$@" | grep -cE '^\[ +SKIPPED +\] [^0-9]' || true)
  echo "$passed passed, $failed failed, $skipped skipped"
}
