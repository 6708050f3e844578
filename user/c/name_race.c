/* Threads look names up while others change the directory around them.
 *
 * name_race ROUNDS: exits with 0 if each name that stays was always found, also while it is replaced or its
 * neighbours come and go, if a name that moves to another directory was at one of its two places, and if a
 * directory that moves always had a path. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "must.h"

enum { MANY = 300, THREADS = 5 };

static atomic_bool done;
/* The number of moves that have begun. */
static atomic_long moves;
/* A directory that moves. */
static int moving;

static int is(const char *path)
{
    struct stat found;
    if (stat(path, &found) == 0)
        return 1;
    must(path, errno == ENOENT);
    return 0;
}

static void make(const char *path)
{
    int fd = open(path, O_CREAT | O_WRONLY, 0644);
    must(path, fd >= 0 && close(fd) == 0);
}

/* Move number n goes from `here` to `inner/there` if n is odd, and back if it is even. If no other move
 * begins between two looks, a name that has come is at its old place no more, and one that has left has
 * come. */
static void look_for_the_moved(void)
{
    long move = atomic_load(&moves);
    const char *from = move % 2 ? "here" : "inner/there", *to = move % 2 ? "inner/there" : "here";
    int twice = is(to) && is(from);
    int lost = !is(from) && !is(to);
    must("a moved name is at one place", atomic_load(&moves) != move || (!twice && !lost));
}

/* The directory moves from `moving` to `inner/moved` and back. */
static void ask_for_its_path(void)
{
    char link[32], path[64] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", moving);
    must(link, readlink(link, path, sizeof path - 1) > 0);
    must(path, strcmp(path, "/tmp/name_race/moving") == 0 || strcmp(path, "/tmp/name_race/inner/moved") == 0);
}

static void *reader(void *unused)
{
    struct stat old, new;
    (void)unused;
    while (!atomic_load(&done)) {
        must("a name that stays", is("stays"));
        must("a name that is replaced", is("replaced"));
        must("a name that never is", !is("never"));
        look_for_the_moved();
        ask_for_its_path();
        must("by a path", stat("inner/../stays", &old) == 0 && stat("./stays", &new) == 0 && old.st_ino == new.st_ino);
    }
    return NULL;
}

/* Files come and go, more than fit at first. */
static void *crowd(void *unused)
{
    char name[32];
    (void)unused;
    while (!atomic_load(&done)) {
        for (int i = 0; i < MANY; i++) {
            snprintf(name, sizeof name, "crowd%d", i);
            make(name);
        }
        for (int i = 0; i < MANY; i++) {
            snprintf(name, sizeof name, "crowd%d", i);
            must("unlink", unlink(name) == 0);
        }
    }
    return NULL;
}

/* Files move between two directories in opposite directions, also into one that comes and goes. */
static void *outwards(void *unused)
{
    (void)unused;
    while (!atomic_load(&done)) {
        must("out and back", rename("out", "inner/out") == 0 && rename("inner/out", "out") == 0);
        must("a directory that comes", mkdir("inner/short", 0755) == 0 || errno == EEXIST);
        must("a directory that goes", rmdir("inner/short") == 0 || errno == ENOTEMPTY);
    }
    return NULL;
}

static void *inwards(void *unused)
{
    (void)unused;
    while (!atomic_load(&done)) {
        must("in", rename("inner/in", "in") == 0);
        int is_there = rename("in", "inner/short/in") == 0;
        must("into a directory that goes", is_there || errno == ENOENT);
        must("back", rename(is_there ? "inner/short/in" : "in", "inner/in") == 0);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    long rounds = argc > 1 ? atol(argv[1]) : 1000;
    void *(*runs[THREADS])(void *) = { crowd, reader, reader, outwards, inwards };
    pthread_t threads[THREADS];
    must("mkdir", mkdir("/tmp/name_race", 0755) == 0 && chdir("/tmp/name_race") == 0 && mkdir("inner", 0755) == 0);
    make("stays");
    make("replaced");
    make("here");
    make("out");
    make("inner/in");
    must("a directory", mkdir("moving", 0755) == 0 && (moving = open("moving", O_RDONLY | O_DIRECTORY)) >= 0);
    for (int i = 0; i < THREADS; i++)
        must("pthread_create", pthread_create(&threads[i], NULL, runs[i], NULL) == 0);
    for (long round = 0; round < rounds; round++) {
        make("new");
        must("replace", rename("new", "replaced") == 0 && !is("new"));
        long move = atomic_fetch_add(&moves, 1) + 1;
        must("move", rename(move % 2 ? "here" : "inner/there", move % 2 ? "inner/there" : "here") == 0);
        must("move a directory", rename("moving", "inner/moved") == 0 && rename("inner/moved", "moving") == 0);
    }
    atomic_store(&done, 1);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    must("those that crossed", unlink("out") == 0 && unlink("inner/in") == 0);
    must("a directory that came", rmdir("inner/short") == 0 || errno == ENOENT);
    must("the directory", rmdir("moving") == 0 && close(moving) == 0);
    must("the rest", unlink("stays") == 0 && unlink("replaced") == 0 && unlink(rounds % 2 ? "inner/there" : "here") == 0);
    must("it is empty", rmdir("inner") == 0 && chdir("/") == 0 && rmdir("/tmp/name_race") == 0);
    printf("name_race: done\n");
    return 0;
}
