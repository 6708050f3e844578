// Counts the bytes that a thread can still read after it has unmapped them.
#include "rule.h"

int main(void) {
    enum { COUNT = 2000, PAGES = 8 };
    static unsigned char *at[COUNT];
    for (int i = 0; i < COUNT; i++) {
        at[i] = map_pages(PAGES);
        memset(at[i], 1, PAGES * page);
    }
    for (int i = 0; i < COUNT; i++) NEED(munmap(at[i], PAGES * page) == 0);
    long readable = 0;
    for (int i = 0; i < COUNT; i++) readable += is_readable(at[i]);
    printf("%ld\n", readable * PAGES * (long)page);
    return 0;
}
