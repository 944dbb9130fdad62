#!/bin/sh
# The sources are formatted as .clang-format says. Skipped (77) if clang-format 14 is missing, since other
# versions format differently. Usage: check_format.sh SOURCE_ROOT
cd "$1" || exit 1
tool=$(command -v clang-format-14 || command -v clang-format) || exit 77
"$tool" --version | grep -q 'version 14\.' || exit 77
find include src kernels samplers launcher examples tests \( -name '*.[ch]' -o -name '*.hpp' \) -print0 |
    xargs -0 "$tool" --dry-run -Werror
