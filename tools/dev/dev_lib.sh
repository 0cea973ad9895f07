# shellcheck shell=bash disable=SC2034  # variables here are read by the scripts that source this
# SPDX-License-Identifier: Apache-2.0
# Shared by the scripts of this directory: what a verb needs installed, and how it configures a build.
# Sourced, never run; the working directory is the repository's root.

# What each Debian package is needed for, as a probe: a command, or a command line that fails without it.
# A machine that has the thing by other means needs no package.
declare -A PROBE=(
  [afl++]="afl-clang-fast --version && command -v afl-fuzz"
  [binutils]="nm --version"
  [check]="printf '#include <check.h>' | cc -E -"
  [clang]="clang --version"
  [clang-format-14]="clang-format-14 --version"
  [clang-tidy-14]="clang-tidy-14 --version"
  [cmake]="cmake --version"
  [cppcheck]="cppcheck --version"
  [g++]="g++ --version"
  [gcc]="gcc --version && cc --version"
  [gcc-aarch64-linux-gnu]="aarch64-linux-gnu-gcc --version"
  [gcc-i686-linux-gnu]="i686-linux-gnu-gcc --version"
  [gcc-riscv64-linux-gnu]="riscv64-linux-gnu-gcc --version"
  [gcc-s390x-linux-gnu]="s390x-linux-gnu-gcc --version"
  [git]="git --version"
  [groff-base]="groff --version"
  [libc6-dev]="printf '#include <stdio.h>' | cc -E -"
  [libc6-dev-arm64-cross]="printf '#include <stdio.h>' | aarch64-linux-gnu-gcc -E -"
  [libc6-dev-i386-cross]="printf '#include <stdio.h>' | i686-linux-gnu-gcc -E -"
  [libc6-dev-riscv64-cross]="printf '#include <stdio.h>' | riscv64-linux-gnu-gcc -E -"
  [libc6-dev-s390x-cross]="printf '#include <stdio.h>' | s390x-linux-gnu-gcc -E -"
  [libclang-rt-14-dev]="echo 'int LLVMFuzzerTestOneInput(void) { return 0; }' | clang -fsanitize=fuzzer,address -o /dev/null -x c -"
  [libdnnl-dev]="printf '#include <oneapi/dnnl/dnnl.h>' | cc -E -"
  [libgmp-dev]="printf '#include <gmp.h>' | cc -E -"
  [libjansson-dev]="printf '#include <jansson.h>' | cc -E -"
  [libmpfr-dev]="printf '#include <mpfr.h>' | cc -E -"
  [libomp-dev]="printf '#include <omp.h>' | clang -fopenmp -E -"
  [libopenblas-dev]="printf '#include <cblas.h>' | cc -I/usr/include/$(uname -m)-linux-gnu -E -"
  [libpopt-dev]="printf '#include <popt.h>' | cc -E -"
  [llvm-14]="llvm-cov-14 --version && llvm-profdata-14 merge --version"
  [nettle-dev]="printf '#include <nettle/sha2.h>' | cc -E -"
  [ninja-build]="ninja --version"
  [pkg-config]="pkg-config --version"
  [python3]="python3 --version"
  [python3-venv]="python3 -c 'import ensurepip, venv'"
  [qemu-user]="qemu-aarch64 --version && qemu-i386 --version && qemu-riscv64 --version && qemu-s390x --version && qemu-x86_64 --version"
  [shellcheck]="shellcheck --version"
  [valgrind]="valgrind --version"
)

# The sets that verbs name.
BUILD_PACKAGES=(gcc libc6-dev cmake ninja-build pkg-config libjansson-dev libpopt-dev nettle-dev)
TEST_PACKAGES=("${BUILD_PACKAGES[@]}" g++ binutils check libgmp-dev libmpfr-dev python3 python3-venv)

say() { printf '== %s\n' "$*"; }
die() { printf 'dev: %s\n' "$*" >&2; exit 3; }

# need PACKAGE...: return with all of them usable, or stop with a sentence that names the missing ones.
need() {
  local package missing=() as_root=() apt
  for package in "$@"; do
    [[ -n ${PROBE[$package]:-} ]] || die "no probe for package $package in tools/dev/dev_lib.sh"
    bash -c "${PROBE[$package]}" >/dev/null 2>&1 || missing+=("$package")
  done
  ((${#missing[@]})) || return 0
  command -v apt-get >/dev/null ||
    die "this verb needs ${missing[*]} (Debian package names); please install your system's equivalents"
  if ((EUID != 0)); then
    command -v sudo >/dev/null || die "please run as root: apt-get install ${missing[*]}"
    as_root=(sudo)
    [[ -t 0 ]] || as_root=(sudo -n)
  fi
  say "installing ${missing[*]}"
  apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -y -qq -o DPkg::Lock::Timeout=300)
  # Package lists may be absent or stale: refresh them only when the first try fails.
  "${apt[@]}" install --no-install-recommends "${missing[@]}" >/dev/null 2>&1 </dev/null || {
    "${apt[@]}" update </dev/null
    "${apt[@]}" install --no-install-recommends "${missing[@]}" >/dev/null </dev/null
  } || die "apt-get could not install ${missing[*]}"
  for package in "${missing[@]}"; do
    bash -c "${PROBE[$package]}" >/dev/null 2>&1 || die "$package is installed and still fails: ${PROBE[$package]}"
  done
}

# Parallel jobs: one a core.
JOBS=$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)

# quietly LOG COMMAND...: keep the output in LOG, show it only when the command fails.
quietly() {
  local log=$1
  shift
  "$@" >"$log" 2>&1 </dev/null || { cat "$log" >&2; die "failed: $* (log: $log)"; }
}

# configure PRESET [CMAKE-ARGUMENT...]: make build/PRESET.  build: the same, and build everything in it.
# CMake that finds a compiler changed starts over without the preset's flags, and a sanitizer's build then watches
# nothing: so presets name a C++ compiler in the environment, which is read once.
configure() {
  mkdir -p "build/$1"
  quietly "build/$1/configure.log" cmake --preset "$@"
  ! grep -q 'require your cache to be deleted' "build/$1/configure.log" ||
    die "build/$1 is of another compiler: delete it, and try again"
}
build() {
  say "building build/$1"
  configure "$@"
  quietly "build/$1/build.log" cmake --build "build/$1" -j "$JOBS"
}
