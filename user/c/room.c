/* Files that were removed leave their room to others at once, to a writer that needs it, also if
 * the machine sleeps in between.
 *
 * room ROUNDS */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PIECE (64 * 1024)
#define SLACK (4 * 1024 * 1024L)

static char piece[PIECE];

static void must(int good, const char *what)
{
    if (!good) {
        dprintf(1, "room: %s: %s\n", what, strerror(errno));
        _exit(1);
    }
}

/* Writes a new file of at most `most` bytes, as far as there is room. Returns its length. */
static long fill(const char *name, long most)
{
    int fd = open(name, O_CREAT | O_EXCL | O_WRONLY, 0600);
    long length = 0;
    must(fd >= 0, "open");
    while (length < most) {
        ssize_t wrote = write(fd, piece, PIECE);
        if (wrote < 0) {
            must(errno == ENOSPC, "write");
            break;
        }
        length += wrote;
    }
    must(close(fd) == 0, "close");
    return length;
}

int main(int argc, char **argv)
{
    long rounds = argc == 2 ? atol(argv[1]) : 0;
    must(rounds > 0, "room ROUNDS");
    memset(piece, 'x', PIECE);
    long room = fill("/tmp/all", 1L << 40);
    must(room > 4 * SLACK, "much room");
    for (long round = 0; round < rounds; round++) {
        must(unlink("/tmp/all") == 0, "unlink");
        must(fill("/tmp/all", room - SLACK) >= room - SLACK, "as much room as before");
    }
    must(unlink("/tmp/all") == 0, "unlink");
    /* Twice as much as there is, in files that replace one another. Nothing is done in between. */
    for (long written = 0; written < 2 * room; written += SLACK / 2) {
        must(fill("/tmp/new", SLACK / 2) == SLACK / 2, "room for a file");
        must(rename("/tmp/new", "/tmp/old") == 0, "rename");
        usleep(20000);
    }
    puts("room: done");
    return 0;
}
