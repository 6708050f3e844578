/* Arguments, environment and exit status.
 *
 * hello [STATUS]: prints its arguments and environment on stdout, one line on stderr, and exits with STATUS
 * (default 0). */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        printf("argument %d: %s\n", i, argv[i]);
    const char *greeting = getenv("GREETING");
    printf("GREETING=%s\n", greeting ? greeting : "(unset)");
    printf("terminals: %d%d%d\n", isatty(0), isatty(1), isatty(2));
    fprintf(stderr, "hello on stderr\n");
    printf("hello: done\n");
    return argc > 1 ? atoi(argv[1]) : 0;
}
