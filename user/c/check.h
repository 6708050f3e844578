/* What these programs say of each thing they try: a line that is the same wherever it goes well. */

#include <errno.h>
#include <stdio.h>

static int failures;

__attribute__((unused)) static void check(const char *part, int good)
{
    printf("%s: %s\n", part, good ? "ok" : "WRONG");
    fflush(stdout);
    failures += !good;
}

/* Whether a call said `error`. */
__attribute__((unused)) static int fails(long result, int error)
{
    return result == -1 && errno == error;
}
