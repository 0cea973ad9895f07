/* SPDX-License-Identifier: Apache-2.0
 *
 * A user of the installed library: C11 and C++, through find_package and pkg-config, shared and static.
 * It shows that headers, flags and libraries suffice, not that results are right.
 */
#include <m3idx.h>
#include <stdio.h>
#include <string.h>

int main(void) {
  m3idx_contract contract;
  char name[64], version[32];
  snprintf(version, sizeof version, "%d.%d.%d", M3IDX_VERSION_MAJOR, M3IDX_VERSION_MINOR, M3IDX_VERSION_PATCH);
  if (strcmp(version, m3idx_version()) != 0) return printf("header %s, library %s\n", version, m3idx_version()), 1;
  if (m3idx_contract_by_name("aiter", &contract) != M3IDX_OK) return puts("no contract aiter"), 1;
  m3idx_contract_name(&contract, name, sizeof name);
  if (strcmp(name, "aiter") != 0) return printf("aiter came back as %s\n", name), 1;
  return 0;
}
