#!/usr/bin/env bash
# conda-forge builds cddp without MPI and CUDA: each is a module that a package of its own would bring.
set -euo pipefail
# shellcheck disable=SC2086 # MESON_ARGS is a list, of conda's compilers
meson setup build ${MESON_ARGS:-} --prefix="$PREFIX" --libdir=lib --buildtype=release \
  -Dtools=enabled -Dhwloc=enabled -Djpeg=enabled -Dpng=enabled -Ddocs=enabled \
  -Dmpi=disabled -Dcuda=disabled -Dtests=disabled
ninja -C build -j "${CPU_COUNT:-1}"
meson install -C build --no-rebuild
