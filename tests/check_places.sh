#!/bin/sh
# Tests look at places of their own only: what is missing in their own folder nobody else can have made, and what
# they write nobody else finds. Usage: check_places.sh SOURCE_ROOT
cd "$1" || exit 1
found=$(grep -rnE --include='*.[ch]' --include='*.py' "[\"'=](/(nonexistent|nowhere|missing|no|not|does)\b|/tmp/)" tests |
    grep -v 'strstr\|TORCHELASTIC_ERROR_FILE')
if [ -n "$found" ]; then
    echo "$found"
    echo "    a test names a place outside its own folder"
    exit 1
fi
