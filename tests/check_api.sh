#!/bin/sh
# The public headers' documentation is complete and well-formed: Doxygen has nothing to say about it.
# Skipped (77) where Doxygen is missing. Usage: check_api.sh SOURCE_ROOT
cd "$1" || exit 1
command -v doxygen >/dev/null || exit 77
out=$(mktemp -d) || exit 1
trap 'rm -rf "$out"' EXIT
said=$({ cat doc/Doxyfile; echo "OUTPUT_DIRECTORY = $out"; } | doxygen - 2>&1) || exit 1
[ -z "$said" ] || { echo "$said"; exit 1; }
