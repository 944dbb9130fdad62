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

# _cddp_value PROGRAM KEY PREFIX : values of a key of train.conf, by its type.
_cddp_value() {
  local type
  type=$("$1" --keys="$2" 2>/dev/null | awk -v key="$2" '
    inside { printf "%s ", $0; if (/;/ || !/^ /) exit }
    $0 == key { inside = 1 }')
  type=${type#"${type%%[! ]*}"}
  case $type in
  "word: "*) type=${type#word: } type=${type%%;*} && _cddp_words "$3" "${type//,/}" ;;
  bool*) _cddp_words "$3" "true false" ;;
  int* | real*) ;;
  *) _cddp_files "$3" ;;
  esac
}

_cddp() {
  local program=${COMP_WORDS[0]} current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} help values i
  local equals="" asks_keys=""
  COMPREPLY=()
  program=${program/#\~/$HOME}
  [ "$current" != "=" ] || { before="=" current=; } # bash divides words at =
  if [ "$before" = "=" ]; then
    equals=1
    i=$((COMP_CWORD - (${#current} > 0 ? 2 : 1)))
    [ "${COMP_WORDS[i]}" != "=" ] || i=$((i - 1))
    before=${COMP_WORDS[i]}
  fi
  for ((i = 1; i < COMP_CWORD; i++)); do
    case ${COMP_WORDS[i]} in
    --keys) asks_keys=1 ;;
    --) # a program of the user's, and its own words
      if [ $i -lt $((COMP_CWORD - 1)) ]; then
        _cddp_files "$current"
      else
        mapfile -t COMPREPLY < <(compgen -c -f -- "$current")
      fi
      return
      ;;
    esac
  done
  help=$("$program" --help 2>/dev/null) || return
  if [ -n "$asks_keys" ] && [[ $current != -* ]]; then
    _cddp_words "$current" "$("$program" --keys 2>/dev/null | grep -E '^[a-z_0-9]+(\.[a-z_0-9]+)*$')"
    return
  fi
  case $before in
  -*) # the value of an option, if it has one
    values=$(sed -nE "s/^  (-., )?(--[a-z-]+) ([^ a-z]|[^ ]*[^ a-z][^ ]*|[a-z]+)(  .*)?$/\1\2 \3/p" <<<"$help" |
      awk -v option="$before" '{ gsub(",", "") } $1 == option || (NF > 2 && $2 == option) { print $NF }')
    case $values in
    "") ;;
    *"|"*) # N stands for a number
      _cddp_words "$current" "$(tr '|' '\n' <<<"$values" | grep -v '^[A-Z]')" && return
      ;;
    ? | SECONDS | BYTES | RANK) return ;; # a number
    *) _cddp_files "$current" && return ;;
    esac
    ;;
  *.*)
    if [ -n "$equals" ]; then # the value of a key
      _cddp_value "$program" "$before" "$current"
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
    *cddp-ctl) [ "$COMP_CWORD" -eq 1 ] || _cddp_words "$current" status top checkpoint stop add remove ;;
    *cddp-run | *cddp-train)
      values=$("$program" --keys 2>/dev/null | sed -nE 's/^([a-z_0-9]+\.[a-z_0-9.]+)$/\1=/p')
      COMPREPLY+=($(compgen -W "$values" -- "$current"))
      [ ${#COMPREPLY[@]} -ne 1 ] || [[ ${COMPREPLY[0]} != *= ]] || compopt -o nospace 2>/dev/null
      ;;
    esac
    ;;
  esac
}

complete -F _cddp cddp-run cddp-ctl cddp-train cddp-bench cddp-convert cddp-tokenize cddp-trace cddp-report
