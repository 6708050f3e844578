/* Reads and changes the files of a folder that exists before: names, contents, lengths, mappings, links.
 * Prints what every Linux prints. The folder has
 *   a          10000 bytes, byte i is i * 7 + i / 256
 *   b, c       5000 bytes of 'b' and of 'c'
 *   sub/f      "inner\n"
 *   link       a link to sub/f,  up  a link to ../FOLDER/b,  nowhere  a dangling link
 *   many/NNNNN 2500 empty files
 *   shared/N   16 files of 70000 bytes, byte i is N + i / 4096
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tell.h"

#define A_BYTES 10000

static void fail(const char *what) {
    printf("%s: %s\n", what, strerror(errno));
    fflush(stdout);
    exit(1);
}

static void need(int condition, const char *what) {
    if (!condition)
        fail(what);
}

static unsigned long sum(const unsigned char *bytes, long count) {
    unsigned long sum = 5381;
    for (long i = 0; i < count; i++)
        sum = sum * 33 + bytes[i];
    return sum;
}

static void show(const char *name) {
    static unsigned char bytes[1 << 17];
    int file = open(name, O_RDONLY);
    if (file < 0) {
        tell(name, file);
        return;
    }
    long done = 0, got;
    while ((got = read(file, bytes + done, sizeof bytes - done)) > 0)
        done += got;
    struct stat stat;
    need(fstat(file, &stat) == 0, name);
    printf("%s: %ld bytes of %ld, %lo, sum %lx\n", name, done, (long)stat.st_size, (long)stat.st_mode,
           sum(bytes, done));
    close(file);
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void list(const char *name) {
    DIR *folder = opendir(name);
    need(folder != NULL, name);
    char **names = calloc(4096, sizeof *names);
    int count = 0, kinds[16] = {0};
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        names[count++] = strdup(entry->d_name);
        kinds[entry->d_type & 15]++;
    }
    closedir(folder);
    qsort(names, count, sizeof *names, by_name);
    unsigned long all = 0;
    for (int i = 0; i < count; i++) {
        all = all * 31 + sum((unsigned char *)names[i], strlen(names[i]));
        if (count < 32)
            printf(" %s", names[i]);
    }
    printf("\n%s: %d names, %d files, %d folders, %d links, %lx\n", name, count, kinds[DT_REG], kinds[DT_DIR],
           kinds[DT_LNK], all);
}

static void reads(void) {
    show("a");
    show("./sub/../sub/f");
    show("link");
    show("up");
    show("nowhere");
    show("none/a");
    show("a/none");
    char target[64];
    long got = readlink("link", target, sizeof target);
    printf("link leads to %.*s\n", (int)got, target);
    tell("readlink of a file", readlink("a", target, sizeof target));
    struct stat stat;
    need(lstat("link", &stat) == 0, "lstat");
    printf("lstat of a link: %lo, %ld bytes\n", (long)stat.st_mode, (long)stat.st_size);
    tell("open of a folder for writing", open("sub", O_RDWR));
    tell("making what is there", open("a", O_CREAT | O_EXCL | O_RDWR, 0644));
    int file = open("a", O_RDONLY);
    tell("write to what is open for reading", write(file, "x", 1));
    unsigned char byte;
    tell("pread of the last byte", pread(file, &byte, 1, A_BYTES - 1));
    tell("pread at the end", pread(file, &byte, 1, A_BYTES));
    tell("hole", lseek(file, 0, SEEK_HOLE));
    tell("data", lseek(file, 100, SEEK_DATA));
    close(file);
    list("many");
    list(".");
}

static void changes(void) {
    int file = open("a", O_RDWR);
    need(file >= 0, "open a");
    need(pwrite(file, "changed", 7, 4093) == 7, "pwrite");
    show("a");
    need(ftruncate(file, 5001) == 0, "ftruncate");
    need(ftruncate(file, 9000) == 0, "ftruncate");
    show("a");
    need(ftruncate(file, 4096) == 0 && ftruncate(file, 12000) == 0, "ftruncate");
    show("a");
    need(pwrite(file, "far", 3, 70000) == 3, "pwrite");
    close(file);
    show("a");
    file = open("b", O_WRONLY | O_APPEND);
    need(write(file, "more", 4) == 4, "append");
    close(file);
    show("b");
    show("up");
    need(truncate("b", 3) == 0, "truncate");
    show("b");
    file = open("c", O_WRONLY | O_TRUNC);
    need(write(file, "new", 3) == 3, "write");
    close(file);
    show("c");
    need(chmod("c", 0600) == 0, "chmod");
    show("c");
}

static void mappings(void) {
    int file = open("shared/3", O_RDWR);
    unsigned char *shared = mmap(NULL, 70000, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    unsigned char *own = mmap(NULL, 70000, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    need(shared != MAP_FAILED && own != MAP_FAILED, "mmap");
    printf("mapped: %lx\n", sum(shared, 70000));
    own[5000] = 'p';
    shared[6000] = 's';
    unsigned char bytes[2];
    need(pread(file, bytes, 1, 5000) == 1 && pread(file, bytes + 1, 1, 6000) == 1, "pread");
    printf("shared %d %d, own %d %d, read %d %d\n", shared[5000], shared[6000], own[5000], own[6000], bytes[0],
           bytes[1]);
    pid_t child = fork();
    if (child == 0) {
        shared[7000] = own[5000] + 1;
        _exit(0);
    }
    need(waitpid(child, NULL, 0) == child, "waitpid");
    printf("after a child: %d, end of the last page %d\n", shared[7000], shared[70001]);
    munmap(shared, 70000);
    munmap(own, 70000);
    close(file);
    show("shared/3");
}

static void names(void) {
    need(unlink("b") == 0, "unlink");
    show("b");
    int file = open("b", O_CREAT | O_EXCL | O_WRONLY, 0640);
    need(file >= 0 && write(file, "again", 5) == 5, "create");
    close(file);
    show("b");
    need(rename("c", "sub/d") == 0, "rename");
    show("c");
    show("sub/d");
    need(link("sub/d", "e") == 0, "link");
    show("e");
    need(symlink("sub/d", "s") == 0, "symlink");
    show("s");
    tell("rmdir of a full folder", rmdir("sub"));
    need(mkdir("made", 0750) == 0 && rename("sub", "made/sub") == 0, "move a folder");
    show("made/sub/f");
    show("sub/f");
    show("link");
    need(rename("made/sub/d", "a") == 0, "replace");
    show("a");
    need(unlink("made/sub/f") == 0 && rmdir("made/sub") == 0 && rmdir("made") == 0, "remove all");
    tell("rmdir of what is gone", rmdir("made"));
    list(".");
    char path[32];
    for (int i = 0; i < 2500; i++) {
        snprintf(path, sizeof path, "many/%05d", i);
        if (i % 2 == 0)
            need(unlink(path) == 0, path);
    }
    list("many");
}

static void *read_all(void *unused) {
    static unsigned char bytes[4][70000];
    static int next;
    unsigned char *mine = bytes[__atomic_fetch_add(&next, 1, __ATOMIC_RELAXED)];
    unsigned long all = 0;
    char path[32];
    for (int i = 0; i < 16; i++) {
        snprintf(path, sizeof path, "shared/%d", i);
        int file = open(path, O_RDONLY);
        need(file >= 0 && read(file, mine, 70000) == 70000, path);
        close(file);
        all = all * 31 + sum(mine, 70000);
    }
    (void)unused;
    return (void *)all;
}

/* Threads meet files that none has looked at. */
static void threads(void) {
    pthread_t all[4];
    for (int i = 0; i < 4; i++)
        need(pthread_create(&all[i], NULL, read_all, NULL) == 0, "pthread_create");
    for (int i = 0; i < 4; i++) {
        void *result;
        pthread_join(all[i], &result);
        printf("thread %d: %lx\n", i, (unsigned long)result);
    }
}

/* Writes below the end while the file is truncated and extended again: old bytes must not come back. */
static int hurried;

static void *write_one(void *file) {
    while (__atomic_load_n(&hurried, __ATOMIC_RELAXED) == 0)
        ;
    if (pwrite(*(int *)file, "x", 1, 5 * 4096 + 10) != 1)
        fail("pwrite");
    return NULL;
}

static void truncations(void) {
    static unsigned char bytes[4096];
    long wrong = 0;
    for (int i = 0; i < 64; i++) {
        char path[32];
        snprintf(path, sizeof path, "shared/%d", i % 16);
        need(i >= 16 || link(path, "again") == 0, "link");
        int file = open(i >= 16 ? path : "again", O_RDWR);
        need(file >= 0, path);
        need(i >= 16 || unlink("again") == 0, "unlink");
        pthread_t thread;
        __atomic_store_n(&hurried, 0, __ATOMIC_RELAXED);
        need(pthread_create(&thread, NULL, write_one, &file) == 0, "pthread_create");
        __atomic_store_n(&hurried, 1, __ATOMIC_RELAXED);
        need(ftruncate(file, 0) == 0 && ftruncate(file, 20 * 4096) == 0, "ftruncate");
        pthread_join(thread, NULL);
        need(pread(file, bytes, sizeof bytes, 5 * 4096) == sizeof bytes, "pread");
        for (int at = 0; at < 4096; at++)
            wrong += bytes[at] != 0 && !(at == 10 && bytes[at] == 'x');
        close(file);
    }
    printf("old bytes: %ld\n", wrong);
}

/* A name always leads to one of many files. */
static void *rename_all(void *unused) {
    char path[32];
    while (__atomic_load_n(&hurried, __ATOMIC_RELAXED) != 3)
        sched_yield();
    for (int i = 1; i < 1000; i++) {
        snprintf(path, sizeof path, "many/%05d", i);
        need(rename(path, "many/00000") == 0, path);
    }
    hurried = 2;
    return unused;
}

static void replacements(void) {
    pthread_t thread;
    need(pthread_create(&thread, NULL, rename_all, NULL) == 0, "pthread_create");
    long opened = 0;
    while (__atomic_load_n(&hurried, __ATOMIC_RELAXED) != 2) {
        int file = open("many/00000", O_WRONLY | O_CREAT, 0644);
        need(file >= 0, "open");
        close(file);
        if (opened++ == 0)
            hurried = 3;
    }
    pthread_join(thread, NULL);
    printf("opened: %d\n", opened > 0);
}

/* Changes that another program makes on the host, after it was told that the guest has looked. */
static void changed_outside(void) {
    struct stat before, after;
    need(stat("b", &before) == 0, "stat");
    list("sub");
    printf("ready\n");
    fflush(stdout);
    char byte;
    need(read(0, &byte, 1) == 1, "read");
    int file = open("b", O_RDWR);
    static char bytes[8192];
    need(file >= 0 && ftruncate(file, 8192) == 0 && read(file, bytes, 8192) == 8192, "b");
    long wrong = 0;
    for (int i = 0; i < 8192; i++)
        wrong += bytes[i] != (i < 5000 ? 'b' : 0);
    printf("bytes from outside: %ld\n", wrong);
    tell("made again", mkdir("sub/f", 0755));
    tell("removed", rmdir("sub/f"));
    file = open("sub/f", O_WRONLY | O_CREAT, 0644);
    need(file >= 0 && write(file, "new", 3) == 3 && fstat(file, &after) == 0, "sub/f");
    tell("all", unlink("sub/f") + rmdir("sub"));
}

/* The differences from a writable folder, as in overlayfs. */
static void overlay(void) {
    struct stat one, other;
    need(link("b", "b2") == 0, "link");
    int file = open("b", O_WRONLY | O_APPEND);
    need(write(file, "x", 1) == 1, "write");
    need(stat("b", &one) == 0 && stat("b2", &other) == 0, "stat");
    printf("two files: %d, lengths %ld %ld, names %ld %ld\n", one.st_ino != other.st_ino, (long)one.st_size,
           (long)other.st_size, (long)one.st_nlink, (long)other.st_nlink);
    need(stat("c", &one) == 0, "stat");
    tell("a folder", open("c", O_RDWR | O_DIRECTORY));
    int reader = open("c", O_RDONLY), writer = open("c", O_WRONLY);
    need(fstat(reader, &one) == 0 && fstat(writer, &other) == 0, "fstat");
    printf("same number: %d\n", one.st_ino == other.st_ino);
    need(write(writer, "new", 3) == 3, "write");
    char byte;
    need(pread(reader, &byte, 1, 0) == 1, "pread");
    printf("an old descriptor: %c\n", byte);
    char number[32];
    snprintf(number, sizeof number, "/proc/self/fd/%d", reader);
    tell("by its number", open(number, O_WRONLY));
    tell("rename of /dev", rename("/dev", "/other"));
    tell("in its place", rename("made", "/proc"));
    tell("a hole", fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096));
    truncations();
    replacements();
}

int main(int argc, char **argv) {
    if (argc > 1)
        need(chdir(argv[1]) == 0, argv[1]);
    if (argc > 2 && strcmp(argv[2], "outside") == 0) {
        changed_outside();
        return 0;
    }
    if (argc > 2) {
        overlay();
        return 0;
    }
    threads();
    reads();
    changes();
    mappings();
    names();
    printf("done\n");
    return 0;
}
