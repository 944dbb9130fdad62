# setup.sh - sourced by the other scripts: installs missing Debian/Ubuntu packages when it may, says
# exactly which when it may not, and builds.

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

# --help prints the comment that the script begins with, and does nothing else.
for word in "$@"; do
  case $word in
  --) break ;;
  -h | --help) [ ! -f "scripts/$(basename "$0")" ] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "scripts/$(basename "$0")" && exit 0; } ;;
  esac
done
unset word

# dpkg-dev tells Meson where Debian has libraries: lib/x86_64-linux-gnu, not lib64, where no loader looks
build_packages="gcc libc6-dev dpkg-dev pkg-config meson ninja-build libdnnl-dev libconfig-dev
  libjansson-dev libdeflate-dev libsodium-dev libhwloc-dev libutf8proc-dev
  libjpeg-dev libpng-dev libopenmpi-dev scdoc"
data_packages="dataset-fashion-mnist"
text_packages="bible-kjv bible-kjv-text"
test_packages="libcmocka-dev openmpi-bin patch g++ gfortran cmake zsh groff-base"
cluster_packages="iproute2 nftables openssh-client openssh-server slurm-wlm munge environment-modules" # without them their tests are skipped
browser_packages="chromium librsvg2-bin" # the same, or look less closely

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

# build FOLDER [meson options...] : configure, or configure again with these options, then build
# everything, or what $targets lists. What is for GPUs is left out until it is asked for: -Dcuda=auto.
build() {
  local folder=$1
  shift
  if [ ! -f "$folder/build.ninja" ]; then
    meson setup "$folder" -Dcuda=disabled ${STRICT:+-Dwerror=true} "$@" || exit 1
  else
    meson configure "$folder" ${STRICT:+-Dwerror=true} "$@" || exit 1
  fi
  # shellcheck disable=SC2086 # a list
  ninja -C "$folder" ${targets:-} || exit 1
}

# counts LOG... : the closing line over cmocka's cases in those of Meson's test logs that exist. A
# program that ended in the middle, or has no cases, counts as one itself.
counts() {
  { cat "$@" 2>/dev/null || true; } | awk '
    function close_program() {
      if (result ~ /exit status 77/) {
        skipped++
      } else if (result != "" && result !~ /exit status 0/ && bad == 0) {
        failed++
      } else if (result ~ /exit status 0/ && cases == 0) {
        passed++
      }
      result = ""; cases = bad = listing = 0
    }
    /^=+ [0-9]+\/[0-9]+ =+$/ { close_program() }
    /^result: / { result = $0 }
    /^-+ stdout -+$/ { listing = 1 }
    /^-+ stderr -+$/ { listing = 0 } # where failed and skipped cases are named again
    listing && /^\[ +OK \]/ { passed++; cases++ }
    listing && /^\[ +FAILED +\] [^0-9]/ { failed++; cases++; bad++ }
    listing && /^\[ +SKIPPED +\] [^0-9]/ { skipped++; cases++ }
    END {
      close_program()
      printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped
    }'
}
