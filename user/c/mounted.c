/* A directory of the host that the program may change, while the host looks at it and changes it, too.
 *
 * mounted: the current directory is that one. Prints a line for each step, and waits once for a line. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static void say(const char *what, long result)
{
    printf("%s: %s\n", what, result < 0 ? strerror(errno) : "ok");
    fflush(stdout);
}

static void wait_for_line(void)
{
    char line[10];
    if (!fgets(line, sizeof line, stdin))
        exit(3);
}

static int known_file;

int main(void)
{
    char bytes[8200];
    struct stat known;
    stat("log", &known), stat("gone", &known);
    memset(bytes, 'x', sizeof bytes);
    int file = open("written", O_RDWR | O_CREAT | O_EXCL, 0640);
    say("written", write(file, bytes, sizeof bytes) - (long)sizeof bytes);
    say("fsync", fsync(file));
    say("link", link("written", "second"));
    say("unlink", unlink("written"));
    close(open("output", O_WRONLY | O_CREAT, 0600));
    char first;
    say("host's", read(known_file = open("known", O_RDONLY), &first, 1));
    say("ready", 0);
    /* The host has looked at it, made "new" and removed "old". */
    wait_for_line();
    say("new for itself", open("new", O_RDWR | O_CREAT | O_EXCL, 0600));
    int new = open("new", O_RDWR | O_CREAT, 0600);
    memset(bytes, 0, sizeof bytes);
    say("new", read(new, bytes, sizeof bytes));
    printf("new says %s\n", bytes);
    say("old", rmdir("old"));
    say("made before", mkdir("made", 0700));
    say("made again", mkdir("made/inside", 0700));
    /* The name by which it was made is gone, and another file has it. */
    say("written anew", close(open("written", O_RDWR | O_CREAT, 0600)));
    say("truncated", ftruncate(file, 100));
    say("chmod", fchmod(file, 0600));
    say("closed", close(file));
    /* Bytes that are written to a mapping when no descriptor is left go back at the end. */
    int mapped = open("mapped", O_RDWR | O_CREAT, 0600);
    say("ftruncate", ftruncate(mapped, 5000));
    char *map = mmap(NULL, 5000, PROT_READ | PROT_WRITE, MAP_SHARED, mapped, 0);
    say("mapped", close(mapped));
    strcpy(map + 4096, "late");
    say("a hole", fallocate(new, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096));
    say("a nameless file", open(".", O_RDWR | O_TMPFILE, 0600));
    say("out", rename("second", "/tmp/out"));
    int open_at_the_end = open("open", O_RDWR | O_CREAT | O_APPEND, 0600);
    say("open", write(open_at_the_end, "the end", 7));
    
    /* It has removed the next two. */
    int output = open("output", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    say("output", write(output, "again", 5));
    say("closed", close(output));
    unlink("known");
    char name[40];
    snprintf(name, sizeof name, "/proc/self/fd/%d", known_file);
    say("known", read(open(name, O_RDONLY), &first, 1));
    int log = open("log", O_RDWR | O_APPEND);
    say("log", write(log, "three\n", 6));
    memset(bytes, 0, sizeof bytes);
    pread(log, bytes, sizeof bytes, 0);
    for (char *end; (end = strchr(bytes, '\n'));)
        *end = end[1] ? ' ' : 0;
    printf("log says %s\n", bytes);
    /* It has removed this one, and made that one. */
    int gone = open("gone", O_WRONLY | O_CREAT | O_TRUNC | O_SYNC, 0600);
    say("gone", write(gone, "new", 3));
    say("taken", syscall(SYS_renameat2, AT_FDCWD, "open", AT_FDCWD, "taken", 1 /* RENAME_NOREPLACE */));
    say("synced", close(gone));
    return 0;
}
