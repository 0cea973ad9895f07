/* SPDX-License-Identifier: Apache-2.0
 *
 * Inputs lie in mappings of their own, flush against an unreadable page; a fault in one is named before the end.
 */
#define _POSIX_C_SOURCE 200809L
#include "conform_memory.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void *conform_alloc(size_t bytes) {
  void *p = malloc(bytes ? bytes : 1);
  if (p) return p;
  fprintf(stderr, "conform: no memory for %lu bytes\n", (unsigned long)bytes);
  exit(2);
}

void conform_poison(void *to, size_t bytes, size_t element_bytes) {
  const uint32_t poison = CONFORM_POISON;
  unsigned char *at = to;
  if (element_bytes < sizeof poison) {
    memset(to, CONFORM_POISON & 0xff, bytes);
    return;
  }
  for (size_t i = 0; i < bytes; i += sizeof poison)
    memcpy(at + i, &poison, bytes - i < sizeof poison ? bytes - i : sizeof poison);
}

/* ---- inputs ---- */

enum { MOST_INPUTS = 64 };
static const conform_input *live[MOST_INPUTS];

static void remember(const conform_input *input, const conform_input *instead_of) {
  int i = 0;
  while (i < MOST_INPUTS && live[i] != instead_of) i++;
  if (i < MOST_INPUTS) live[i] = input;
}

/* Mappings of inputs that are gone, unreadable until they serve again: the kernel takes longer to make one than a small
 * call takes to run. */
enum { MOST_SPARE = 64, LARGEST_SPARE = 1 << 22 };
static struct spare {
  unsigned char *map;
  size_t bytes;
} spares[MOST_SPARE];

static unsigned char *take_spare(size_t room) {
  for (int i = MOST_SPARE - 1; i >= 0; i--) {
    if (!spares[i].map || spares[i].bytes != room) continue;
    unsigned char *map = spares[i].map;
    spares[i].map = NULL;
    return mprotect(map, room, PROT_READ | PROT_WRITE) ? NULL : map;
  }
  return NULL;
}

static unsigned char *map_pages(size_t room, size_t page) {
  const int zero = open("/dev/zero", O_RDWR);
  void *map = zero < 0 ? MAP_FAILED : mmap(NULL, room + page, PROT_READ | PROT_WRITE, MAP_PRIVATE, zero, 0);
  if (zero >= 0) close(zero);
  if (map == MAP_FAILED) return NULL;
  return mprotect((unsigned char *)map + room, page, PROT_NONE) ? NULL : map;
}

unsigned char *conform_input_make(conform_input *input, const char *name, size_t bytes) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE), most = bytes + CONFORM_GUARD_BYTES;
  size_t room = page;
  while (room < most && room < LARGEST_SPARE) room *= 2;
  if (room < most) room = (most + page - 1) / page * page;
  unsigned char *map = take_spare(room);
  if (!map) map = map_pages(room, page);
  if (!map) {
    fprintf(stderr, "conform: cannot map %lu bytes for %s\n", (unsigned long)bytes, name);
    exit(2);
  }
  *input = (conform_input){.name = name, .bytes = bytes, .map = map, .map_bytes = room, .page_bytes = page};
  unsigned char *data = map + room - bytes;
  const size_t before = room - bytes < page ? room - bytes : page;
  conform_poison(data - before, before + bytes, sizeof(uint32_t));
  input->data = data;
  return data;
}

void conform_input_seal(conform_input *input) {
  if (mprotect(input->map, input->map_bytes, PROT_READ)) {
    fprintf(stderr, "conform: cannot protect %s\n", input->name);
    exit(2);
  }
  remember(input, NULL);
}

void conform_input_copy(conform_input *input, const char *name, const void *from, size_t bytes) {
  unsigned char *to = conform_input_make(input, name, bytes);
  if (bytes) memcpy(to, from, bytes);
  conform_input_seal(input);
}

void conform_input_free(conform_input *input) {
  int i = 0;
  remember(NULL, input);
  while (i < MOST_SPARE && spares[i].map) i++;
  if (input->map && i < MOST_SPARE && input->map_bytes <= LARGEST_SPARE &&
      !mprotect(input->map, input->map_bytes, PROT_NONE))
    spares[i] = (struct spare){input->map, input->map_bytes};
  else if (input->map)
    munmap(input->map, input->map_bytes + input->page_bytes);
  *input = (conform_input){0};
}

/* ---- faults ---- */

static char headline_noted[4096], repeat_noted[4096];

void conform_memory_note(const char *headline, const char *repeat) {
  snprintf(headline_noted, sizeof headline_noted, "%s", headline);
  snprintf(repeat_noted, sizeof repeat_noted, "%s", repeat);
}

static const conform_input *input_at(uintptr_t address) {
  for (int i = 0; i < MOST_INPUTS; i++) {
    if (!live[i]) continue;
    const uintptr_t first = (uintptr_t)live[i]->map;
    if (address >= first && address < first + live[i]->map_bytes + live[i]->page_bytes) return live[i];
  }
  return NULL;
}

/* The process cannot go on: threads may be inside the backend.  The streams are not trusted either. */
static void fault(int number, siginfo_t *info, void *context) {
  static char said[9000], what[512];
  const uintptr_t address = (uintptr_t)info->si_addr;
  const conform_input *input = input_at(address);
  (void)context;
  if (!input)
    snprintf(what, sizeof what, "  signal %d at address %p, in none of the inputs\n", number, info->si_addr);
  else if (address >= (uintptr_t)input->data + input->bytes)
    snprintf(what, sizeof what, "  input %s: touched byte %lu of %lu, past its end\n", input->name,
             (unsigned long)(address - (uintptr_t)input->data), (unsigned long)input->bytes);
  else if (address >= (uintptr_t)input->data)
    snprintf(what, sizeof what, "  input %s: byte %lu of %lu was written\n", input->name,
             (unsigned long)(address - (uintptr_t)input->data), (unsigned long)input->bytes);
  else
    snprintf(what, sizeof what, "  input %s: a byte before its start was written\n", input->name);
  int n = snprintf(said, sizeof said, "FAIL %s\n%s  repeat: %s\n", headline_noted, what, repeat_noted);
  if (n > 0 && write(STDOUT_FILENO, said, (size_t)n) < 0) _exit(2);
  _exit(1);
}

void conform_memory_watch(void) {
  struct sigaction action = {.sa_sigaction = fault, .sa_flags = SA_SIGINFO};
  sigemptyset(&action.sa_mask);
  sigaction(SIGSEGV, &action, NULL);
  sigaction(SIGBUS, &action, NULL);
}
