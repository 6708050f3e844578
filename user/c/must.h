/* The end of a test program at the first thing that goes wrong. */

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Ends the program with the name of a part, unless that went well. */
static inline void must(const char *part, int good)
{
    if (good)
        return;
    printf("%s: WRONG, %s\n", part, strerror(errno));
    fflush(stdout);
    _exit(1);
}
