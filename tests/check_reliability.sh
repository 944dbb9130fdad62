#!/bin/sh
# Every promise of doc/reliability.md, and every row of doc/security.md, names a test, and every test that it names exists: a case of a program that
# Meson runs, a script of tests/scripts, a fuzzer, or a kind of fault of scripts/chaos. Usage: check_reliability.sh SOURCE_ROOT
cd "$1" || exit 1
bad=0

refuse() {
    echo "$page: $1"
    bad=1
}

# tests ROWS... : prints the names in backticks in their last column, one per line.
tests() {
    sed -n 's/^|.*|\([^|]*\)|$/\1/p' | grep -o '`[^`]*`' | tr -d '`'
}

look_at() {
    while read -r row; do
        [ -n "$(printf '%s\n' "$row" | tests)" ] || refuse "no test in: $row"
    done <<END
$(grep '^|' "$page" | grep -v '^| promise |\|^| who |\|^| what |\|^|---')
END

    while read -r name; do
        case $name in
        'chaos: '*) grep -q "^KINDS = .*\"${name#chaos: }\"\|^ .*\"${name#chaos: }\"[,)]" scripts/chaos ||
            refuse "scripts/chaos has no fault \"${name#chaos: }\"" ;;
        fuzz_*) { [ -f "tests/fuzz/$name.c" ] && grep -q "\['${name#fuzz_}'," tests/fuzz/meson.build; } ||
            refuse "there is no fuzzer $name" ;;
        test_*': '*)
            program=${name%%: *}
            short=${program#test_}
            cat tests/*/meson.build | grep -q "\['$short'," ||
                tr '\n' ' ' <tests/meson.build | grep -q "foreach name : \[[^]]*'${short#launcher_}'" || # those beside tests/AREA/meson.build
                refuse "Meson runs no $program"
            grep -qs "[(]${name#*: }[,)]" tests/*/"$program.c" || refuse "$program has no case ${name#*: }" ;;
        test_*.py) { [ -f "tests/scripts/$name" ] && grep -q "scripts/$name" tests/meson.build; } ||
            refuse "Meson runs no $name" ;;
        *) refuse "what is \"$name\"?" ;;
        esac
    done <<END
$(tests <"$page")
END
}

for page in doc/reliability.md doc/security.md; do
    look_at
done
exit $bad
