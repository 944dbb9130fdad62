#!/bin/sh
# Tests use only their own folders: a path that a test expects to be missing there cannot have been made by anybody else, and
# nobody else finds what a test writes. Usage: check_places.sh SOURCE_ROOT
cd "$1" || exit 1
found=$(grep -rnE --include='*.[ch]' --include='*.py' "[\"'=](/(nonexistent|nowhere|missing|no|not|does)\b|/tmp/)" tests |
    grep -v 'strstr\|TORCHELASTIC_ERROR_FILE')
if [ -n "$found" ]; then
    echo "$found"
    echo "    a test names a place outside its own folder"
    exit 1
fi
