# shellcheck shell=bash disable=SC2034  # CHECKS is read by the script that sources this
# SPDX-License-Identifier: Apache-2.0
# The checks of ./dev lint.  Each function check_NAME judges the tree in the working directory, prints what it
# found wrong and fails if there was anything.  Sourced by run_checks.sh, which also shows that each can fail.

CHECKS=(format tidy cppcheck shellcheck headers includes names clauses spdx words sizes docs man)

# files PATTERN...: tracked and new files, one a line; git's pathspecs.
files() {
  git ls-files --cached --others --exclude-standard -- "$@" | while read -r f; do [[ ! -f $f ]] || echo "$f"; done
}

C_SOURCES=('*.c' '*.h')
CXX_SOURCES=('*.hip' '*.cpp' '*.hpp')

check_format() {
  files "${C_SOURCES[@]}" "${CXX_SOURCES[@]}" | xargs -r clang-format-14 --dry-run --Werror --ferror-limit=3
}

# What clang-tidy looks for stands in .clang-tidy.  It reads the flags of each file from LINT_BUILD; files that are
# not built there are the business of other checks, as are HIP kernels and the shim that runs them on a host.
check_tidy() {
  local database=${LINT_BUILD:-build/clang}/compile_commands.json list found
  list=$(sed -n 's/^ *"file": "\(.*\)".*/\1/p' "$database" | grep -v -E '/(tests/simt|hip)/' | sort -u)
  [[ -n $list ]] || { echo "no files in $database"; return 1; }
  found=$(echo "$list" | xargs -P "${JOBS:-2}" -n 4 clang-tidy-14 --quiet -p "${database%/*}" 2>/dev/null |
    grep -E '(warning|error): ') || true # the finding, without the path that leads to it
  [[ -z $found ]] || { echo "$found" | sort -u; return 1; }
}

check_cppcheck() {
  files '*.c' | xargs -r cppcheck --quiet --std=c11 --language=c --enable=warning,portability,performance \
    --inline-suppr --inconclusive --error-exitcode=1 --suppressions-list=tests/lint/cppcheck.txt -j "${JOBS:-2}" \
    -I common -I ref
}

check_shellcheck() {
  { files '*.sh'; files | xargs grep -l -I -m 1 '^#!.*sh$'; } | sort -u |
    xargs -r shellcheck --external-sources --source-path=SCRIPTDIR:.
}

# A header includes what it uses, so that it compiles as the first thing in a file.  HIP headers need the HIP
# runtime and are compiled by the hip room and its shim.
check_headers() {
  local h status=0 flags=(-std=c11 -Wall -Wextra -Wpedantic -Wno-unused-function -Werror -fsyntax-only -I common -I ref
    -I ref/simd -I tests/oracle -I tests/versus -I tests/conform -I tests/unit -I fuzz -I tools)
  while read -r h; do
    # On the quote path, so that Check's <check.h> is not common/check.h.
    printf '#include "%s"\nextern int not_empty;\n' "$PWD/$h" | gcc "${flags[@]/#-I/-iquote}" -x c - || status=1
  done < <(files 'common/*.h' 'ref/*.h' 'tests/*.h' 'fuzz/*.h' 'tools/*.h' | grep -v '^tests/s[il][^/]*/')
  for std in c++11 c++20; do
    printf '#include "m3idx.h"\n' | g++ -std=$std -Wall -Wextra -Wpedantic -Werror -fsyntax-only -I common -x c++ - ||
      status=1
  done
  return $status
}

# Which rooms a room may include from; a room always includes from itself.
declare -A MAY_INCLUDE=(
  [common]=""
  [ref]="common"
  [ref/simd]="common ref"
  [hip]="common"
  [tools]="common fuzz"
  [fuzz]="common tests/oracle tests/conform tests/simt"
  [tests/oracle]=""
  [tests/versus]="common tests/oracle"
  [tests/conform]="common"
)
# Where a system header may be included from; unlisted headers of third parties may be included nowhere.
declare -A HEADER_ROOMS=(
  [gmp.h]="tests" [mpfr.h]="tests" [check.h]="tests" [jansson.h]="common tools tests fuzz" [popt.h]="tools tests"
  [nettle/sha2.h]="tools tests" [immintrin.h]="ref/simd" [arm_neon.h]="ref/simd"
  [cpuid.h]="ref/simd" [sys/syscall.h]="ref/simd" [oneapi/dnnl/dnnl.h]="tools"
)
C11_AND_POSIX=" assert.h complex.h ctype.h errno.h fenv.h float.h inttypes.h iso646.h limits.h locale.h math.h
 setjmp.h signal.h stdalign.h stdarg.h stdatomic.h stdbool.h stddef.h stdint.h stdio.h stdlib.h stdnoreturn.h string.h
 tgmath.h threads.h time.h uchar.h wchar.h wctype.h omp.h dlfcn.h fcntl.h pthread.h sys/mman.h sys/stat.h sys/types.h
 sys/wait.h sys/time.h unistd.h dirent.h poll.h "

room_of() {
  case $1 in
    ref/simd/*) echo ref/simd ;;
    tests/*/*) echo "$1" | cut -d/ -f1,2 ;;
    */*) echo "${1%%/*}" ;;
  esac
}

check_includes() {
  local status=0 file header form room from
  declare -A home
  while read -r file; do home[${file##*/}]=$(room_of "$file"); done < <(files '*.h' '*.def' '*.hpp' '*.inc')
  while IFS=: read -r file header; do
    room=$(room_of "$file")
    form=${header%"${header#?}"}
    header=${header#?}
    header=${header%?}
    from=${home[${header##*/}]:-}
    if [[ $form == '<' ]]; then
      [[ $room == hip || $room == tests/s[il]* || $room == tests/codeobj || $room == tests/plugin ]] && continue
      [[ $C11_AND_POSIX == *[[:space:]]"$header"[[:space:]]* ]] && continue
      [[ $header != *.h && $file != *.[ch] ]] && continue # the C++ library, in C++
      [[ $header == m3idx.h && $room == tests/package ]] && continue
      case " ${HEADER_ROOMS[$header]:-} " in
        *" $room "* | *" ${room%%/*} "*) continue ;;
      esac
      echo "$file: <$header> has no place in room $room"
      status=1
    elif [[ -z $from ]]; then
      echo "$file: \"$header\" is not a file of the tree"
      status=1
    elif [[ $from != "$room" && -n ${MAY_INCLUDE[$room]+set} && " ${MAY_INCLUDE[$room]} " != *" $from "* ]]; then
      echo "$file: room $room may not include $header of room $from"
      status=1
    fi
  done < <(files "${C_SOURCES[@]}" "${CXX_SOURCES[@]}" | xargs -r grep -H -o -E '^ *# *include +("[^"]*"|<[^>]*>)' |
    sed -E 's/: *# *include +/:/')
  return $status
}

check_names() {
  local twice
  twice=$(files ':!fuzz/corpus' | sed 's|.*/||' | grep -v -x -E 'CMakeLists\.txt|README\.md|\.gitignore|\.clang-tidy' | sort | uniq -d)
  [[ -z $twice ]] || { echo "more than one file is called:"; echo "$twice"; return 1; }
}

# Every clause of SEMANTICS is cited where it is implemented and where it is tested; every citation exists.  ref carries
# all but S8: launch policies are common's, and ref launches nothing.
check_clauses() {
  local status=0 clause clauses cited_ref cited_common cited_tests
  clauses=$(grep -o -E '^### S[0-9]+\.[0-9]+' docs/SEMANTICS.md | cut -c5- | sort -u)
  cited_ref=$(files 'ref/*' | xargs -r grep -h -o -w -E 'S[0-9]+\.[0-9]+' | sort -u)
  cited_common=$(files 'common/*' | xargs -r grep -h -o -w -E 'S[0-9]+\.[0-9]+' | sort -u)
  cited_tests=$(files 'tests/*' 'fuzz/*' ':!tests/lint' ':!fuzz/corpus' | xargs -r grep -h -o -w -E 'S[0-9]+\.[0-9]+' | sort -u)
  for clause in $clauses; do
    if [[ $clause == S8.* ]]; then
      grep -q -x -F "$clause" <<<"$cited_common" || { echo "$clause is not cited in common/"; status=1; }
    else
      grep -q -x -F "$clause" <<<"$cited_ref" || { echo "$clause is not cited in ref/"; status=1; }
    fi
    grep -q -x -F "$clause" <<<"$cited_tests" || { echo "$clause is not cited in a test"; status=1; }
  done
  while IFS=: read -r file line clause; do
    grep -q -x -F "$clause" <<<"$clauses" || { echo "$file:$line: SEMANTICS has no clause $clause"; status=1; }
  done < <(files ':!tests/lint' ':!fuzz/corpus' | xargs -r grep -I -H -n -o -w -E 'S[0-9]\.[0-9]+')
  return $status
}

check_spdx() {
  local f status=0
  while read -r f; do
    head -n 5 "$f" | grep -q -a 'SPDX-License-Identifier: Apache-2.0' || { echo "$f: no SPDX line"; status=1; }
  done < <(files ':!LICENSE' ':!*.json' ':!*.safetensors' ':!fuzz/corpus')
  return $status
}

check_words() {
  local status=0
  ! files ':!tests/lint' ':!fuzz/corpus' | xargs -r grep -I -H -n -w -E 'TODO|FIXME|XXX|HACK' | grep -v -E 'TODO\(#[0-9]+\)' || status=1
  ! files "${C_SOURCES[@]}" "${CXX_SOURCES[@]}" | xargs -r grep -H -n -E '^ *# *if +0\b' || status=1
  ! files 'common/*.c' 'ref/*.c' 'hip/*' | xargs -r grep -H -n -w -E '(abort|exit) *\(' || status=1
  ! files ':!LICENSE' ':!fuzz/corpus' ':!*.tsv' | xargs -r grep -I -H -n -E '[[:blank:]]$|'$'\t' | grep -v Makefile ||
    status=1
  return $status
}

# 600 lines a file, 120 columns a line of code; scripts may hold case lines, which are not broken.
check_sizes() {
  local status=0 f lines
  while read -r f; do
    lines=$(wc -l <"$f")
    ((lines <= 600)) || { echo "$f: $lines lines, at most 600"; status=1; }
  done < <(files "${C_SOURCES[@]}" "${CXX_SOURCES[@]}" '*.sh' '*.cmake')
  ! files "${C_SOURCES[@]}" "${CXX_SOURCES[@]}" '*.cmake' '*.def' | xargs -r grep -H -n -E '^.{121,}' || status=1
  return $status
}

# Verbs that the texts name exist, every verb is in the README, relative links lead somewhere.
check_docs() {
  local status=0 verb file target
  for verb in $(files '*.md' '.ci/*' '.github/*' | xargs -r grep -h -o -E '\./dev [a-z-]+' | cut -c7- | sort -u); do
    [[ -f tools/dev/$verb.sh ]] || { echo "./dev $verb is named in a text and does not exist"; status=1; }
  done
  for file in $(files 'tools/dev/*.sh' | grep -v _); do
    verb=$(basename "$file" .sh)
    grep -q "\./dev $verb\b" README.md || { echo "README.md does not name ./dev $verb"; status=1; }
  done
  while IFS=: read -r file target; do
    [[ -e $(dirname "$file")/${target%%#*} ]] || { echo "$file: link to $target leads nowhere"; status=1; }
  done < <(files '*.md' | xargs -r grep -H -o -E '\]\([^)#: ]+\)' | sed 's/](\(.*\))/\1/')
  return $status
}

check_man() {
  local page warnings status=0
  while read -r page; do
    warnings=$(groff -man -Tutf8 -ww -z "$page" 2>&1) || status=1
    [[ -z $warnings ]] || { echo "$warnings"; status=1; }
  done < <(files '*.1' '*.3')
  return $status
}
