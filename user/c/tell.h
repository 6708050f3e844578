/* The result of a call, for programs whose output is compared with that on Linux. */

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Prints the result of a call that may fail. */
static inline void tell(const char *what, long result) {
    if (result < 0)
        printf("%s: %s\n", what, strerror(errno));
    else
        printf("%s: %ld\n", what, result);
}
