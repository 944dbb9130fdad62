#!/bin/sh
# Includes and symbols point only down the layers, which the calls of `check` below list. Usage:
# check_layers.sh SOURCE_ROOT [BUILD_ROOT]; without BUILD_ROOT only includes are checked.
cd "$1" || exit 1
bad=0
layers= # one line per folder, for check_symbols.py
ours=' base store device group ddp loader checkpoint recovery nn optim data parallel report train infer programs kernels samplers launcher tests src include '

# The folder that a public header belongs to.
owner_of() {
    case $1 in
    process.h | status.h | types.h) echo base ;;
    sampler.h) echo samplers ;;
    parallel.h) echo device ;;
    exchange.h | mpi.h | spawn.h) echo group ;;
    cddp.h) echo everything ;;
    model.h) echo infer ;;
    *) echo "${1%.h}" ;;
    esac
}

# includes FILE : prints what it includes (or, for a patch, adds as includes), in quotes or angle brackets, one per line.
includes() {
    sed -n 's/^[ +]*# *include *["<]\([^">]*\)[">].*/\1/p' "$1"
}

# refuse FILE INCLUDE REASON
refuse() {
    echo "$1 includes $2: $3"
    bad=1
}

# check FOLDER ALLOWED... : files below FOLDER include "X/..." and X's public header only if X is in
# ALLOWED (or is FOLDER itself).
check() {
    layers="$layers$*
"
    folder=$1
    shift
    allowed=" $(basename "$folder") $* "
    for file in $(find "$folder" -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' | sort); do
        for include in $(includes "$file"); do
            case $include in
            cddp/*) top=$(owner_of "${include#cddp/}") ;;
            ../* | ./* | */../*) top=.. ;;
            */*) top=${include%%/*} ;;
            cddp_config.h) continue ;; # generated: facts about the build
            *)
                [ -e "$(dirname "$file")/$include" ] || continue # the system's
                grep -q "include *\"$include\"" "$file" || continue # in <>, even if a file of that name is beside it
                refuse "$file" "$include" "name its folder, too"
                continue
                ;;
            esac
            case $ours:$include in
            *" $top "* | *:cddp/* | *:*../*) ;;
            *) continue ;; # the system's
            esac
            case $allowed in
            *" $top "*) ;;
            *) refuse "$file" "$include" "$folder may use only:$allowed" ;;
            esac
        done
    done
}

check src/runtime/base
check src/runtime/store base
check kernels/cpu base kernels
check kernels/cuda base kernels
check samplers base
check src/runtime/device base kernels
check src/runtime/group base store kernels device
check src/runtime/ddp base store kernels samplers device group
check src/runtime/loader base samplers device group
check src/runtime/checkpoint base store kernels device group ddp
check src/runtime/recovery base samplers device group ddp
check src/trainer/nn base kernels device group ddp checkpoint
check src/trainer/optim base device group ddp checkpoint kernels
check src/trainer/data base kernels samplers device group loader
check src/trainer/parallel base store kernels device group ddp checkpoint nn optim data
check src/trainer/report base store device group ddp
check src/trainer/train base store kernels samplers device group ddp checkpoint recovery nn optim data parallel report
check src/trainer/infer base store kernels samplers device group ddp checkpoint recovery nn optim data parallel report train
check src/trainer/programs base store kernels samplers device group ddp checkpoint recovery nn optim data parallel report train infer
check launcher base store device group
# From group/, cddp-run uses only the code that reads launchers' variables, as ranks do.
for file in launcher/*.[ch] launcher/*/*.[ch]; do
    for include in $(includes "$file"); do
        case $include in
        group/launch/*.h) ;;
        group/* | cddp/group.h | cddp/exchange.h | cddp/spawn.h | cddp/mpi.h)
            refuse "$file" "$include" "of groups only group/launch/"
            ;;
        esac
    done
done
# Every folder must be in the list above, or it would not be checked.
for folder in src/*/*/; do
    grep -q "^check ${folder%/}\( \|$\)" tests/check_layers.sh || {
        echo "$folder is not in tests/check_layers.sh"
        bad=1
    }
done
# Examples are users' programs: they include only public headers and the system's.
for file in $(find examples -name '*.[ch]' -o -name '*.c[pu]*' -o -name '*.patch'); do
    for include in $(includes "$file"); do
        case $include in
        cddp/*) [ -e "include/$include" ] || refuse "$file" "$include" "no public header" ;;
        */*) case $ours in *" ${include%%/*} "*) refuse "$file" "$include" "not public" ;; esac ;;
        esac
    done
done
# Tests include their own headers with the folder's name: "support/test.h".
for file in $(find tests -name '*.[ch]' -o -name '*.cpp'); do
    for include in $(includes "$file"); do
        case $include in
        ../* | ./*) refuse "$file" "$include" "name its folder below tests/" ;;
        */*) ;;
        *) [ -e "$(dirname "$file")/$include" ] && refuse "$file" "$include" "name its folder, too" ;;
        esac
    done
done
# Public headers include the standard library and each other, downwards only.
for file in include/cddp/*.h include/cddp/*.hpp include/cddp/cpp/*.hpp; do
    name=${file##*/}
    for include in $(includes "$file"); do
        case $name:$include in
        cddp.h:cddp/* | *:std*.h | *:cddp/status.h | *:cddp/types.h | *:cddp/process.h) ;;
        group.h:cddp/store.h | model.h:cddp/checkpoint.h | ddp.h:cddp/group.h | recovery.h:cddp/ddp.h) ;;
        exchange.h:cddp/group.h | loader.h:cddp/group.h | loader.h:cddp/sampler.h) ;;
        # C++ headers include C headers, the C++ parts listed before them, and the standard library.
        cddp.hpp:cddp/* | base.hpp:cddp/group.h | *.hpp:cddp/cpp/base.hpp | *.hpp:"cddp/${name%pp}") ;;
        checkpoint.hpp:cddp/cpp/ddp.hpp | checkpoint.hpp:cddp/cpp/store.hpp | ddp.hpp:cddp/cpp/group.hpp) ;;
        exchange.hpp:cddp/cpp/group.hpp | exchange.hpp:cddp/cpp/store.hpp | loader.hpp:cddp/cpp/group.hpp) ;;
        process.hpp:cddp/exchange.h | recovery.hpp:cddp/cpp/ddp.hpp) ;;
        *.hpp:*.*) refuse "$file" "$include" "not below it" ;;
        *.hpp:*) ;; # <vector> ...
        mpi.h:cddp/group.h | mpi.h:mpi.h | mpi.h:limits.*) ;;
        *) refuse "$file" "$include" "not below it" ;;
        esac
    done
done
[ $# -lt 2 ] || printf %s "$layers" | python3 tests/check_symbols.py "$2" . || bad=1
exit $bad
