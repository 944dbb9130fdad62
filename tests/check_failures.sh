#!/bin/sh
# Failures are data: no code of src/ or launcher/ makes a decision from a failure's text, and only the functions that also
# store a rank put its name before a text (src/runtime/base/error.h). Usage: check_failures.sh SOURCE_ROOT
cd "$1" || exit 1
readers='(mem|str)(str|chr|rchr|mem|n?cmp|n?casecmp|casestr|c?spn|pbrk|tok|tok_r)|v?sscanf|fnmatch|regexec|ato[il]+|strto[a-z]+'
texts='(last_error|last_failure|transport_reason) *\(|[a-z_]*failure(->|\.)text'
reads="(^|[^a-z_])($readers) *\([^;{}]*($texts)|($texts)[^;{}]*\)\[[0-9]"
names='fail(_errno|_prefix|_suffix)? *\([^;"]*"rank %d: '
prints='"cddp-train: '

# find_in PATTERN FILE... : prints FILE: TEXT of each match; each statement is joined to one line.
find_in() {
    pattern=$1
    shift
    for file in "$@"; do
        tr '\n' ' ' <"$file" | tr -s ' ' | grep -oE "$pattern.{0,40}" | sed "s|^|$file: |"
    done
}

# catches PATTERN TEXT : tests the check itself: PATTERN matches TEXT.
catches() {
    echo "$2" | grep -qE "$1" || {
        echo "tests/check_failures.sh does not find: $2"
        bad=1
    }
}

bad=0
catches "$reads" 'if (strstr(cddp_last_error(), ", stopped)") == NULL) {'
catches "$reads" 'x = strncmp(failure->text, "rank ", 5) == 0;'
catches "$reads" "if (cddp_last_error()[0] == '0') {"
catches "$names" 'return cddpi_fail(CDDP_ERR_PEER, "rank %d: gone", rank);'
# shellcheck disable=SC2046 # names without blanks
found=$(
    find_in "$reads" $(grep -rlE 'last_error|last_failure|transport_reason|failure(->|\.)text' src launcher)
    find_in "$names" $(grep -rl '"rank %d: ' src launcher)
    grep -Hn "$prints" launcher/*.[ch] launcher/*/*.[ch]
)
if [ -n "$found" ]; then
    echo "these decide by a failure's text, or name a rank in it by hand:"
    echo "$found"
    bad=1
fi
exit $bad
