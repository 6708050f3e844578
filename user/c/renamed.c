/* Descriptors stay with their files while names move: changes through them reach no other file, and all names
 * of a file show them.
 *
 * renamed: works in the current directory, and prints a line for each step. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void say(const char *what, long result)
{
    printf("%s: %ld %s\n", what, result, result < 0 ? strerror(errno) : "ok");
    fflush(stdout);
}

static int make(const char *name, const char *text)
{
    int file = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
    write(file, text, strlen(text));
    return file;
}

/* Prints what a name, or a descriptor, has. */
static void show(const char *name)
{
    char bytes[200] = "";
    struct stat about;
    int file = open(name, O_RDONLY);
    read(file, bytes, sizeof bytes - 1);
    if (fstat(file, &about) == 0)
        printf("%s has %s, mode %o, links %d, length %d\n", name, bytes, about.st_mode & 0777, (int)about.st_nlink,
               (int)about.st_size);
    else
        printf("%s is not there\n", name);
    close(file);
}

/* The name by which a file was made is gone, and another file has it. */
static void linked(void)
{
    int old = make("a", "one two three");
    say("link", link("a", "b"));
    say("unlink", unlink("a"));
    close(make("a", "another file with a longer text"));
    say("cut", ftruncate(old, 3));
    say("chmod", fchmod(old, 0600));
    close(old);
    show("a"), show("b");
    say("by name", truncate("b", 2));
    int file = open("b", O_WRONLY | O_APPEND);
    say("append", write(file, " more", 5));
    close(file);
    say("chmod", chmod("b", 0640));
    say("back", rename("b", "c"));
    show("a"), show("c");
}

static void replaced(void)
{
    int old = make("d", "to be replaced");
    close(make("e", "new"));
    say("rename", rename("e", "d"));
    say("chmod", fchmod(old, 0));
    struct timespec times[2] = {{1, 0}, {1, 0}};
    say("utime", futimens(old, times));
    say("write", pwrite(old, "unseen", 6, 100));
    say("cut", ftruncate(old, 1));
    say("sync", fsync(old));
    close(old);
    show("d"), show("e");
}

/* Readers from before a file is opened for writing see what is written, and locks are of the file. */
static void shared(void)
{
    close(make("f", "first"));
    int reader = open("f", O_RDONLY), writer = open("f", O_RDWR | O_APPEND);
    char bytes[100] = "";
    write(writer, " second", 7);
    pread(reader, bytes, sizeof bytes - 1, 0);
    printf("reader sees %s\n", bytes);
    say("lock", flock(reader, LOCK_EX));
    say("other lock", flock(open("f", O_RDWR), LOCK_EX | LOCK_NB));
    char name[40];
    snprintf(name, sizeof name, "/proc/self/fd/%d", reader);
    int again = open(name, O_WRONLY | O_APPEND);
    say("again", write(again, " third", 6));
    say("link", link("f", "g"));
    show("g");
    char *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, writer, 0);
    memcpy(map, "FIRST", 5);
    munmap(map, 4096);
    close(writer);
    show("g");
}

/* A file without a name is opened by its descriptor. */
static void nameless(void)
{
    int old = make("i", "without a name");
    char name[40], bytes[100] = "";
    say("unlink", unlink("i"));
    snprintf(name, sizeof name, "/proc/self/fd/%d", old);
    int again = open(name, O_RDWR | O_APPEND);
    say("append", write(again, ", still", 7));
    pread(open(name, O_RDONLY), bytes, sizeof bytes - 1, 0);
    printf("it has %s\n", bytes);
    close(again);
    say("link", fsync(old));
}

/* Appends and truncations by processes at once. */
static void busy(void)
{
    close(make("h", ""));
    for (int i = 0; i < 3; i++)
        if (fork() == 0) {
            for (int n = 0; n < 200; n++) {
                int file = open("h", O_WRONLY | O_APPEND | (i == 2 && n % 50 == 0 ? O_TRUNC : 0));
                write(file, "line\n", 5);
                close(file);
            }
            _exit(0);
        }
    while (wait(NULL) > 0)
        ;
    int file = open("h", O_WRONLY | O_TRUNC);
    say("the end", write(file, "the end", 7));
    close(file);
    show("h");
}

int main(void)
{
    umask(022);
    linked();
    replaced();
    shared();
    nameless();
    busy();
    return 0;
}
