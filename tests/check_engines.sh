#!/bin/sh
# The engine that trains is a row of a table (src/trainer/train/engines/engine.h). No file outside the engines' folder asks
# which engine it has: by the pointer, by an engine's state, or by the keys of train.conf that choose it. Differences between
# engines are members of the row. Usage: check_engines.sh SOURCE_ROOT
cd "$1" || exit 1
bad=0

# refuse PATTERN REASON [EXCEPT] : no line outside the engines matches PATTERN, except in files that match EXCEPT.
refuse() {
    found=$(grep -rnE --include='*.[ch]' "$1" src/trainer/train src/trainer/programs |
        grep -vE "^(src/trainer/train/(engines|config)/|${3:-none})")
    if [ -n "$found" ]; then
        echo "$found"
        echo "    $2"
        bad=1
    fi
}

refuse '(trainer|generator|each|next)(->|\.)(stages|placed|replicated|gan|generator|single)\b' 'an engine of its own in a trainer'
refuse 'engine *[!=]=|[!=]= *(&cddpi_engine_|[a-z_>.-]*->engine\b)' 'asks which engine it is'
refuse 'engine->(name|fits)\b' 'asks which engine it is'
refuse '\bengine_state\b' "looks into an engine's state" 'src/trainer/train/trainer\.h:'
refuse '(->|\.)next *[!=]= *NULL|(\(|!|&& *|\|\| *)(trainer|generator|each)(->|\.)next *(\)|&&|\|\||\?)' \
    'asks for a GAN: go through all trainers of the run'
refuse 'cddpi_engine_(single|stages|placed|replicated|gan)\b' 'chooses an engine' \
    'src/trainer/train/generate/from_checkpoint\.c:.*trainer->engine = '
refuse 'parallel\.(type|pipeline) *([!=<>]=|[<>])|CDDPI_PARALLEL_|CDDPI_MODEL_DCGAN|offload_optimizer' \
    'chooses an engine by a key: engines.c does, by the rows'"'"' fits()'
refuse 'include "train/engines/[a-z_]+/|include "train/engines/own' 'includes what is private to an engine'
exit $bad
