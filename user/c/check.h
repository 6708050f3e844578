/* The output of these programs for each thing they try. The line is the same everywhere that it succeeds. */

#include <errno.h>
#include <stdio.h>

static int failures;

__attribute__((unused)) static void check(const char *part, int good)
{
    printf("%s: %s\n", part, good ? "ok" : "WRONG");
    fflush(stdout);
    failures += !good;
}

/* Returns whether a call failed with `error`. */
__attribute__((unused)) static int fails(long result, int error)
{
    return result == -1 && errno == error;
}
