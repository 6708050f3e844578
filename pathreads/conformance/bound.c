// Counts the bytes that a thread can still read after it has unmapped them: of plain mappings, or with an
// argument of mappings without rights of which it has opened a part.
#include "rule.h"

enum { COUNT = 2000, PAGES = 8, RESERVED = 32 };

static size_t length;

static unsigned char *map(void) {
    int rights = length == PAGES * page ? PROT_READ | PROT_WRITE : PROT_NONE;
    unsigned char *at = mmap(NULL, length, rights, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    NEED(at != MAP_FAILED && (rights || mprotect(at, PAGES * page, PROT_READ | PROT_WRITE) == 0));
    memset(at, 1, PAGES * page);
    return at;
}

int main(int count, char **) {
    static unsigned char *at[COUNT];
    length = (count > 1 ? RESERVED : PAGES) * page;
    NEED(munmap(map(), length) == 0);
    for (int i = 0; i < COUNT; i++) at[i] = map();
    for (int i = 0; i < COUNT; i++) NEED(munmap(at[i], length) == 0);
    long readable = 0;
    for (int i = 0; i < COUNT; i++) readable += is_readable(at[i]);
    printf("%ld\n", readable * PAGES * (long)page);
    return 0;
}
