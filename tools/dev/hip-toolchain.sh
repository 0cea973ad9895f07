#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# dev hip-toolchain [PREFIX]              lay clang, lld and the HIP runtime for gfx942 and gfx950 into a folder
#
# A HIP toolchain for gfx942 and gfx950 on a Debian system that has none.  An installed ROCm is used when
# there is one.  Otherwise clang, lld, the device libraries and libamdhip64 of a newer Debian suite are
# unpacked beside the system, with the C library they were built for, into one folder.  Nothing outside
# that folder changes: no package is installed, no apt list is touched, root is not needed.
# docs/HIP.md says what it costs.  It does not install a driver: what it builds here runs on a machine with a GPU.
set -euo pipefail

readonly REVISION=2 # raise it when a change below changes what is laid down
readonly ARCHS=(gfx942 gfx950)
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
readonly HERE

usage() {
  cat <<'E'
usage: ./dev hip-toolchain [PREFIX]            lay the toolchain into PREFIX, or say which ROCm is used instead
       ./dev hip-toolchain --private [PREFIX]  the same, even where a ROCm is installed
       ./dev hip-toolchain --find              print the toolchain in use as key=value lines; exit 1 if none
       ./dev hip-toolchain --run CMD ...       run a program with the toolchain's own C library and HIP runtime
PREFIX defaults to $M3IDX_HIP_PREFIX, then .cache/hip-toolchain of this checkout.  The newer suite is the
first of $M3IDX_HIP_SUITES ("forky sid") that serves it, from $DEBIAN_MIRROR or the mirror apt uses here.
E
}
say() { printf 'hip-toolchain: %s\n' "$*"; }
die() { printf 'hip-toolchain: %s\n' "$*" >&2; exit 1; }

default_prefix() { realpath -m "${M3IDX_HIP_PREFIX:-$HERE/.cache/hip-toolchain}"; }

# ---- what is there already ---------------------------------------------------------------------------

knows_archs() { # CLANG: does it compile for every target?
  local cpus arch
  cpus=$("$1" --target=amdgcn-amd-amdhsa --print-supported-cpus 2>&1) || return 1
  for arch in "${ARCHS[@]}"; do grep -qw "$arch" <<<"$cpus" || return 1; done
}

find_rocm() { # print the root of an installed ROCm that can build for every target
  local root
  for root in "${ROCM_PATH:-}" /opt/rocm; do
    if [ -f "${root:-/nowhere}/include/hip/hip_runtime.h" ] && [ -e "$root/lib/libamdhip64.so" ] &&
      [ -x "$root/llvm/bin/clang++" ] && knows_archs "$root/llvm/bin/clang++"; then
      realpath "$root"
      return 0
    fi
  done
  return 1
}

is_laid() { [ "$(cat "$1/stamp" 2>/dev/null)" = "$REVISION $1" ]; }

find_toolchain() {
  local root prefix
  prefix=$(default_prefix)
  # A prefix asked for by name goes before a ROCm that happens to be installed.
  if [ -n "${M3IDX_HIP_PREFIX:-}" ] && is_laid "$prefix"; then print_prefix "$prefix"; return; fi
  if root=$(find_rocm); then
    printf 'origin=rocm\nclang=%s\nbin=%s\nrocm=%s\nlib=%s\nloader=\n' \
      "$root/llvm/bin/clang++" "$root/llvm/bin" "$root" "$root/lib"
    return
  fi
  is_laid "$prefix" ||
    die "no ROCm for ${ARCHS[*]} in \$ROCM_PATH or /opt/rocm, none laid in $prefix (./dev hip-toolchain does that)"
  print_prefix "$prefix"
}

print_prefix() {
  printf 'origin=prefix\nclang=%s\nbin=%s\nrocm=%s\nlib=%s\nloader=%s\n' \
    "$1/bin/clang++" "$1/bin" "$1/rocm" "$1/lib" "$1/lib/ld-linux-x86-64.so.2"
}

value_of() { sed -n "s/^$1=//p"; }

run_with_toolchain() {
  local found loader lib program
  found=$(find_toolchain)
  loader=$(value_of loader <<<"$found")
  lib=$(value_of lib <<<"$found")
  if [ -z "$loader" ]; then LD_LIBRARY_PATH=$lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} exec "$@"; fi
  program=$(command -v "$1") || die "$1: not found"
  shift
  exec "$loader" --library-path "$lib" --argv0 "$program" "$program" "$@"
}

# ---- laying it down ----------------------------------------------------------------------------------

mirror() {
  local uri=${DEBIAN_MIRROR:-}
  # shellcheck disable=SC2016  # apt's own variable
  [ -n "$uri" ] ||
    uri=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -m1 '/debian/\?$' || true)
  printf '%s\n' "${uri:-http://deb.debian.org/debian/}"
}

# A private apt: its own sources, lists, cache and an empty list of installed packages.
private_apt() { # WORK SUITE
  local work=$1 suite=$2 keyring=/usr/share/keyrings/debian-archive-keyring.gpg
  [ -f "$keyring" ] || die "$keyring is missing: install debian-archive-keyring, or use an installed ROCm"
  mkdir -p "$work"/{sources,lists/partial,cache/archives/partial,root}
  : >"$work/installed"
  printf 'Types: deb\nURIs: %s\nSuites: %s\nComponents: main\nArchitectures: amd64\nSigned-By: %s\n' \
    "$(mirror)" "$suite" "$keyring" >"$work/sources/suite.sources"
  cat >"$work/apt.conf" <<E
Dir::Etc { sourcelist "/dev/null"; sourceparts "$work/sources"; };
Dir::Etc { preferences "/dev/null"; preferencesparts "/dev/null"; };
Dir::State { lists "$work/lists"; status "$work/installed"; };
Dir::Cache "$work/cache";
APT { Architecture "amd64"; Architectures { "amd64"; }; Install-Recommends "false"; Sandbox::User ""; };
Acquire { Languages "none"; Retries "3"; };
Debug::NoLocking "true";
E
}

fetch_packages() { # WORK SUITE: download the packages and print the LLVM version
  local work=$1 suite=$2 version
  export APT_CONFIG=$work/apt.conf
  # Without the mode a mirror that does not answer is a mere warning.
  apt-get update -qq -o APT::Update::Error-Mode=any >"$work/log" 2>&1 || { tail -3 "$work/log" >&2; return 1; }
  # Device libraries are bitcode of one LLVM: the compiler must be that one.  gfx950 needs LLVM 20 or newer.
  version=$(apt-cache pkgnames rocm-device-libs- | sed -n 's/^rocm-device-libs-\([0-9]\{1,\}\)$/\1/p' |
    sort -n | tail -1)
  if [ "${version:-0}" -lt 20 ]; then echo "suite $suite has no device libraries for gfx950" >&2; return 1; fi
  apt-get install -y -qq --download-only "clang-$version" "clang-tools-$version" "lld-$version" "llvm-$version" \
    "rocm-device-libs-$version" libamdhip64-dev libc6-dev patchelf >"$work/log" 2>&1 ||
    { tail -3 "$work/log" >&2; return 1; }
  printf '%s\n' "$version"
}

unpack_packages() { # WORK: what a HIP build reads, without manuals, locales, interpreters and static sanitizers
  local work=$1 deb name link
  for link in bin sbin lib lib64; do mkdir -p "$work/root/usr/$link"; ln -s "usr/$link" "$work/root/$link"; done
  for deb in "$work"/cache/archives/*.deb; do
    name=${deb##*/}
    case ${name%%_*} in
      python3* | libpython3* | tzdata | media-types | netbase | debconf) continue ;;
      lib32* | libc6-i386 | libc-gconv-*) continue ;;
    esac
    dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$work/root" --keep-directory-symlink --no-same-owner \
      --exclude='./usr/share/doc' --exclude='./usr/share/man' --exclude='./usr/share/locale' \
      --exclude='./usr/share/info' --exclude='*/llvm-exegesis' --exclude='*/c-index-test' \
      --exclude='lib*san.so*' --exclude='lib*san.a'
    printf '%s\n' "$name" >>"$work/root/packages.txt"
  done
}

# The programs run on this machine's kernel with the C library they came with: their loader is named by its
# absolute path, so a folder that was moved is tied again (and nothing fetched).
tie() { # PREFIX LLVM-VERSION
  local prefix=$1 llvm=$1/root/usr/lib/llvm-$2 libs=$1/root/usr/lib/x86_64-linux-gnu loader file
  local loader=$libs/ld-linux-x86-64.so.2
  # patchelf is itself a program of the newer suite, so it needs that loader by hand.
  local patchelf=("$loader" --library-path "$libs" "$prefix/root/usr/bin/patchelf")
  for file in "$llvm"/bin/*; do
    if [ -L "$file" ] || [ "$(head -c 4 "$file" | tail -c 3)" != ELF ]; then continue; fi
    # An old-style RPATH also serves the libraries' own needs, unless a library has a RUNPATH.
    "${patchelf[@]}" --set-interpreter "$loader" --force-rpath --set-rpath "$llvm/lib:$libs" "$file"
  done
  for file in "$libs"/lib{LLVM,clang}*.so.*; do
    if [ -f "$file" ] && [ ! -L "$file" ]; then "${patchelf[@]}" --remove-rpath "$file"; fi
  done
  # A program of this system that opens the runtime finds the rest of it beside it.
  for file in "$libs"/lib{amdhip64,hiprtc,hsa-runtime64,amd_comgr}.so.*; do
    if [ -f "$file" ] && [ ! -L "$file" ]; then "${patchelf[@]}" --force-rpath --set-rpath "\$ORIGIN" "$file"; fi
  done
  # clang reads NAME.cfg beside itself: a build then needs no flags that only this folder knows.
  for file in clang clang++; do
    cat >"$llvm/bin/$file.cfg" <<E
--sysroot=$prefix/root
--rocm-path=$prefix/rocm
-fuse-ld=lld
\$-Wl,--dynamic-linker=$loader
\$-Wl,--disable-new-dtags
\$-Wl,-rpath,$libs
E
  done
}

# The shape of a ROCm: clang's include path for HIP must not name the sysroot's /usr/include, or
# #include_next <math.h> finds nothing behind it.
rocm_view() { # PREFIX LLVM-VERSION
  local rocm=$1/rocm file
  mkdir -p "$rocm"/{include,lib,share,amdgcn}
  ln -s ../../root/usr/include/hip "$rocm/include/hip"
  ln -s ../../root/usr/share/hip "$rocm/share/hip"
  ln -s "../../root/usr/lib/llvm-$2/lib/clang/$2/amdgcn/bitcode" "$rocm/amdgcn/bitcode"
  for file in "$1"/root/usr/lib/x86_64-linux-gnu/lib{amdhip64,hiprtc}*.so*; do
    ln -s "../../root/usr/lib/x86_64-linux-gnu/${file##*/}" "$rocm/lib/"
  done
  ln -s "root/usr/lib/llvm-$2/bin" "$1/bin"
  ln -s root/usr/lib/x86_64-linux-gnu "$1/lib"
}

self_test() { # PREFIX: both targets compile, link, and the program runs as far as the driver
  local prefix=$1 dir out
  dir=$(mktemp -d)
  cat >"$dir/probe.hip" <<'E'
#include <hip/hip_runtime.h>
#include <stdio.h>
__global__ void square(double *x) { x[threadIdx.x] *= x[threadIdx.x]; }
int main() {
  int count = 0;
  hipError_t e = hipGetDeviceCount(&count);
  if (e == hipSuccess && count > 1000000) square<<<1, 64>>>(nullptr);
  printf("hipGetDeviceCount: %s\n", hipGetErrorString(e));
  return e == hipSuccess || e == hipErrorNoDevice || e == hipErrorInsufficientDriver ? 0 : 1;
}
E
  # A failure leaves $dir behind for whoever looks.
  "$prefix/bin/clang++" -x hip "${ARCHS[@]/#/--offload-arch=}" -O2 "$dir/probe.hip" -o "$dir/probe" --hip-link
  "$prefix/bin/llvm-objdump" --offloading "$dir/probe" >"$dir/list"
  for out in "${ARCHS[@]}"; do
    grep -q "$out" "$dir/list" || die "self-test: the probe carries no code object for $out"
  done
  out=$("$dir/probe") || die "self-test: $out"
  rm -rf "$dir"
  say "self-test: ${ARCHS[*]} compile and link; $out"
}

lay() { # PREFIX
  local prefix=$1 work=$1.work suite version=
  if is_laid "$prefix"; then say "ready in $prefix"; return; fi
  if [ "$(cut -d' ' -f1 "$prefix/stamp" 2>/dev/null)" = "$REVISION" ]; then
    say "moved here; tying its programs to $prefix"
  else
    [ "$(uname -m)" = x86_64 ] || die "the packages are for x86-64; on $(uname -m) install ROCm"
    for suite in ${M3IDX_HIP_SUITES:-forky sid}; do
      rm -rf "$work"
      private_apt "$work" "$suite"
      say "fetching from $(mirror) $suite"
      if version=$(fetch_packages "$work" "$suite"); then break; fi
    done
    [ -n "$version" ] || rm -rf "$work"
    [ -n "$version" ] || die "none of the suites ${M3IDX_HIP_SUITES:-forky sid} served the toolchain"
    unset APT_CONFIG
    unpack_packages "$work"
    rm -rf "$prefix"
    mkdir -p "$prefix"
    mv "$work/root" "$prefix/root"
    rm -rf "$work"
    printf '%s\n' "$version" >"$prefix/llvm-version"
    rocm_view "$prefix" "$version"
  fi
  tie "$prefix" "$(cat "$prefix/llvm-version")"
  self_test "$prefix"
  printf '%s %s\n' "$REVISION" "$prefix" >"$prefix/stamp"
  say "ready in $prefix: $("$prefix/bin/clang++" --version | head -1), $(du -sm "$prefix" | cut -f1) MB"
}

main() {
  local root private=
  case ${1:-} in
    -h | --help) usage; return ;;
    --find) find_toolchain; return ;;
    --run) shift; [ $# -gt 0 ] || die "--run needs a program"; run_with_toolchain "$@" ;;
    --private) private=1; shift ;;
    -*) usage >&2; exit 2 ;;
  esac
  [ $# -le 1 ] || { usage >&2; exit 2; }
  if [ -z "$private" ] && [ $# = 0 ] && [ -z "${M3IDX_HIP_PREFIX:-}" ] && root=$(find_rocm); then
    say "the ROCm in $root builds for ${ARCHS[*]}; nothing to lay"
    return
  fi
  root=$(realpath -m "${1:-$(default_prefix)}")
  mkdir -p "$(dirname "$root")"
  exec 9>"$root.lock" # two builds may ask at once
  flock 9
  lay "$root"
}
main "$@"
