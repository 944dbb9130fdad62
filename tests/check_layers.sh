#!/bin/sh
# Includes point down the layers of DESIGN section 1 only. Usage: check_layers.sh SOURCE_ROOT
cd "$1" || exit 1
bad=0

# check FOLDER ALLOWED... : files below FOLDER include "X/..." only for X in ALLOWED (or FOLDER itself).
check() {
    folder=$1
    shift
    files=$(find "$folder" -name '*.[ch]' | sort)
    for file in $files; do
        for include in $(sed -n 's/^ *# *include *"\([^"]*\)".*/\1/p' "$file"); do
            case $include in
            */*) top=${include%%/*} ;;
            *) continue ;; # beside the file, or generated
            esac
            for allowed in "$(basename "$folder")" "$@"; do
                [ "$top" = "$allowed" ] && continue 2
            done
            echo "$file includes \"$include\": $folder may use only: $*"
            bad=1
        done
    done
}

check src/base
check src/store base
check kernels base
check samplers base
check src/group base store kernels
check src/ddp base store kernels group
check src/checkpoint base store kernels group ddp
check src/nn base kernels group ddp
check src/optim base kernels checkpoint
check src/data base kernels samplers group
check src/train base store kernels samplers group ddp checkpoint nn optim data
check launcher base store
check examples
# No <cddp/...> header may reach into the sources.
if grep -n '# *include *"' include/cddp/*.h; then
    echo "a public header includes a private one"
    bad=1
fi
exit $bad
