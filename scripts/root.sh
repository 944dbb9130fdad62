# root.sh - sourced by scripts that build or test in a Debian of its own, below a folder: makes it with
# debootstrap from this machine's mirror, mounts what programs need, and runs commands in it. For root.

root= # the folder, set by make_root
base= # a tar file of the base system alone, set by make_root_once

# The mirror that this machine's apt uses for its own release.
mirror() {
  apt-get indextargets --format '$(RELEASE) $(COMPONENT) $(REPO_URI)' 'Identifier: Packages' |
    awk -v release="$(. /etc/os-release && echo "${VERSION_CODENAME:-}")" '$1 == release && $2 == "main" { print $3; exit }'
}

# make_root FOLDER SUITE : debootstrap's smallest, unless it is there; mounted until unmount_root.
make_root() {
  local made=$1/made-by-debootstrap from
  [ "$(id -u)" -eq 0 ] || { say "this is for root, which alone may chroot" && return 1; }
  root=$1
  if [ ! -e "$made" ]; then
    need debootstrap
    from=$(mirror)
    [ -n "$from" ] || { say "apt knows no Debian mirror on this machine" && return 1; }
    debootstrap --variant=minbase "$2" "$root" "$from" >"$root.log" 2>&1 || { tail -n 5 "$root.log" >&2 && return 1; }
    touch "$made"
  fi
  cp /etc/resolv.conf /etc/hosts "$root/etc" # names of other machines, and localhost
  mount -t proc proc "$root/proc" &&
    mount -t sysfs -o ro sysfs "$root/sys" &&
    mount --bind /dev "$root/dev" &&
    mount --bind /dev/pts "$root/dev/pts" &&
    mount -t tmpfs tmpfs "$root/dev/shm"
}

# make_root_once FOLDER SUITE : make_root, from the copy of its base system in $CDDP_BARE_CACHE (default: ~/.cache/cddp-bare), which the
# first call makes, and with the packages that apt has downloaded before.
make_root_once() {
  local cache=${CDDP_BARE_CACHE:-$HOME/.cache/cddp-bare}
  base=$cache/base.tar
  mkdir -p "$cache/archives/partial"
  if [ -s "$base" ] && [ ! -e "$1" ]; then
    mkdir -p "$1"
    tar -xf "$base" -C "$1" --numeric-owner || rm -f "$base"
  fi
  make_root "$1" "$2" || return 1
  mkdir -p "$1/var/cache/apt/archives"
  if [ ! -s "$base" ]; then # before anything is installed there
    tar -cf "$base.$$" -C "$1" --one-file-system --numeric-owner . && mv "$base.$$" "$base"
  fi
  mount --bind "$cache/archives" "$1/var/cache/apt/archives"
}

# None before make_root: every mount of this machine is below "".
root_mounts() { [ -z "$root" ] || awk -v root="$root/" 'index($5, root) == 1 { print $5 }' /proc/self/mountinfo; }

unmount_root() { # newest first
  root_mounts | sort -r | while read -r place; do umount "$place" 2>/dev/null || true; done
}

inside() { chroot "$root" env -i ${http_proxy:+http_proxy="$http_proxy"} PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 HOME=/root "$@"; }

# copy_tree : what is committed or changed here, into the root's /cddp.
copy_tree() {
  mkdir -p "$root/cddp"
  git ls-files -z --cached --others --exclude-standard | tar --null --ignore-failed-read -c -T - | tar -x -C "$root/cddp"
}
