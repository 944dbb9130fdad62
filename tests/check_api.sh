#!/bin/sh
# The public headers' documentation is complete and well-formed: each header has its page and is named on the first page, each
# function says whether it is a collective, and Doxygen reports nothing. Without @file, Doxygen silently ignores a header's functions. The last part is skipped (77) if
# Doxygen is missing. Usage: check_api.sh SOURCE_ROOT
cd "$1" || exit 1
bad=0
for header in $(find include -name '*.h' -o -name '*.hpp' | sort); do
  [ "$(head -n 1 "$header")" = '/** @file' ] || { echo "$header does not begin with the line /** @file" && bad=1; }
  case $header in
  */cpp/*) ;; # parts of cddp.hpp
  *) grep -q "^- .*${header#include/}[,:]" doc/mainpage.md || { echo "doc/mainpage.md does not name ${header#include/}" && bad=1; } ;;
  esac
done
python3 tests/check_collective.py . || bad=1
[ $bad -eq 0 ] || exit 1
command -v doxygen >/dev/null || exit 77
out=$(mktemp -d) || exit 1
trap 'rm -rf "$out"' EXIT
said=$({ cat doc/Doxyfile; echo "OUTPUT_DIRECTORY = $out"; } | doxygen - 2>&1) || exit 1
[ -z "$said" ] || { echo "$said"; exit 1; }
