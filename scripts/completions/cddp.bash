# Completion in bash of cddp's programs. What there is to complete they are asked themselves (--help,
# and --keys for train.conf), so it is always what the installed ones know.

# _cddp_words PREFIX WORDS... : those that begin so.
_cddp_words() {
  local prefix=$1
  shift
  mapfile -t COMPREPLY < <(compgen -W "$*" -- "$prefix")
}

_cddp_files() {
  compopt -o filenames 2>/dev/null
  mapfile -t COMPREPLY < <(compgen -f -- "$1")
}

_cddp() {
  local program=${COMP_WORDS[0]} current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} help values i
  COMPREPLY=()
  program=${program/#\~/$HOME}
  [ "$current" != "=" ] || { before="=" current=; } # bash divides words at =
  if [ "$before" = "=" ]; then
    i=$((COMP_CWORD - (${#current} > 0 ? 2 : 1)))
    [ "${COMP_WORDS[i]}" != "=" ] || i=$((i - 1))
    before=${COMP_WORDS[i]}
  fi
  for ((i = 1; i < COMP_CWORD; i++)); do
    if [ "${COMP_WORDS[i]}" = -- ]; then # a program of the user's, and its own words
      if [ $i -lt $((COMP_CWORD - 1)) ]; then
        _cddp_files "$current"
      else
        mapfile -t COMPREPLY < <(compgen -c -f -- "$current")
      fi
      return
    fi
  done
  help=$("$program" --help 2>/dev/null) || return
  case $before in
  -*) # the value of an option, if it has one
    values=$(sed -nE "s/^  (-., )?(--[a-z-]+) ([^ a-z]|[^ ]*[^ a-z][^ ]*|[a-z]+)(  .*)?$/\1\2 \3/p" <<<"$help" |
      awk -v option="$before" '{ gsub(",", "") } $1 == option || (NF > 2 && $2 == option) { print $NF }')
    case $values in
    "") ;;
    *"|"*) # N stands for a number
      _cddp_words "$current" "$(tr '|' '\n' <<<"$values" | grep -v '^[A-Z]')" && return
      ;;
    *) _cddp_files "$current" && return ;;
    esac
    ;;
  *.*) # a key of train.conf with one of some words
    values=$("$program" --keys 2>/dev/null | tr -d '\\' | sed -nE "s/^\*${before//./\\.}\* \(word: ([^;)]*).*/\1/p")
    if [ -n "$values" ]; then
      _cddp_words "$current" "${values//,/}"
      return
    fi
    ;;
  esac
  case $current in
  -*) _cddp_words "$current" "$(grep -oE '^  (-., )?--[a-z-]+|^  -., ' <<<"$help" | grep -oE -- '--[a-z-]+')" ;;
  *)
    _cddp_files "$current"
    case $program in
    *cddp-bench) COMPREPLY+=($(compgen -W "$(sed -nE 's/^  ([a-z_]+)  .*/\1/p' <<<"$help")" -- "$current")) ;;
    *cddp-run | *cddp-train)
      program=${program/%cddp-run/cddp-train}
      values=$("$program" --keys 2>/dev/null | tr -d '\\' | sed -nE 's/^\*([a-z_0-9]+\.[a-z_0-9.]+)\*.*/\1=/p')
      COMPREPLY+=($(compgen -W "$values" -- "$current"))
      [ ${#COMPREPLY[@]} -ne 1 ] || [[ ${COMPREPLY[0]} != *= ]] || compopt -o nospace 2>/dev/null
      ;;
    esac
    ;;
  esac
}

complete -F _cddp cddp-run cddp-train cddp-bench cddp-convert cddp-tokenize cddp-trace cddp-report
