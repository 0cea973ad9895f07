# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# For each check of lint_checks.sh: plant_NAME puts one fault into the small sound tree that sound_tree made.
# A check must pass the sound tree and fail the planted one.  Sourced by run_checks.sh.

sound_tree() {
  git init -q .
  mkdir -p common ref tests/unit tests/lint docs tools/dev build/clang
  cp "$1/.clang-format" "$1/.clang-tidy" .
  printf '# SPDX-License-Identifier: Apache-2.0\n' | tee .gitignore tests/lint/cppcheck.txt >/dev/null
  printf '/build/\n' >>.gitignore
  printf '/* SPDX-License-Identifier: Apache-2.0 */\nint one(void);\n' >common/m3idx.h
  printf '/* SPDX-License-Identifier: Apache-2.0 */\n#include "m3idx.h"\n\nint one(void) { return 1; } /* S1.1 */\n' >ref/one.c
  printf '/* SPDX-License-Identifier: Apache-2.0\n * S1.1 */\n' >tests/unit/test_one.c
  printf '#!/usr/bin/env bash\n# SPDX-License-Identifier: Apache-2.0\necho demo\n' >tools/dev/demo.sh
  printf '<!-- SPDX-License-Identifier: Apache-2.0 -->\n### S1.1 What\n' >docs/SEMANTICS.md
  printf '<!-- SPDX-License-Identifier: Apache-2.0 -->\n[law](docs/SEMANTICS.md) ./dev demo\n' >README.md
  printf '.\\" SPDX-License-Identifier: Apache-2.0\n.TH one 1\n.SH NAME\none \\- a page\n' >tools/one.1
  printf '[{"directory": "%s", "command": "cc -Icommon -c ref/one.c",\n"file": "%s/ref/one.c"\n}]\n' "$PWD" "$PWD" \
    >build/clang/compile_commands.json
}

plant_format() { printf 'int  two( void );\n' >>common/m3idx.h; }
plant_tidy() { printf 'int two(int x);\nint two(int x) {\n  if (x) return 2;\n  return *(int *)0;\n}\n' >>ref/one.c; }
plant_cppcheck() {
  printf 'int two(int i);\nint two(int i) {\n  int a[2] = {1, 2};\n  a[2] = i;\n  return a[0];\n}\n' >>ref/one.c
}
# shellcheck disable=SC2016  # the planted script is not expanded here
plant_shellcheck() { printf 'rm -rf $1/*\n' >>tools/dev/demo.sh; }
plant_headers() { printf 'size_t two(void);\n' >>common/m3idx.h; }
plant_includes() { printf '#include "two.h"\n' >>common/m3idx.h && cp common/m3idx.h ref/two.h; }
plant_names() { cp ref/one.c common/one.c; }
plant_clauses() { printf '### S1.2 Nobody cites this\n' >>docs/SEMANTICS.md; }
plant_spdx() { printf 'int two;\n' >ref/two.c; }
plant_words() { printf '#if 0\n#endif\n' >>ref/one.c; }
plant_sizes() { yes '/* */' | head -n 600 >>ref/one.c; }
plant_docs() { printf 'See ./dev nothing.\n' >>README.md; }
plant_man() { printf '.TS\n.nosuchmacro\n' >>tools/one.1; }
