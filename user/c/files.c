/* Files: reads the file it is given, then writes, reads back, lists and removes files below /tmp.
 *
 * files FILE: prints the size and a checksum of FILE. Exits with 0 if everything below /tmp was as
 * written. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "check.h"

/* Reads by an odd size, so that reads straddle pages. */
static void read_all(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        perror(path);
        exit(1);
    }
    struct stat before;
    check("fstat", fstat(fd, &before) == 0 && S_ISREG(before.st_mode));
    uint64_t hash = 14695981039346656037u;
    long size = 0;
    unsigned char buffer[1237];
    for (ssize_t count; (count = read(fd, buffer, sizeof buffer)) > 0; size += count)
        for (ssize_t i = 0; i < count; i++)
            hash = (hash ^ buffer[i]) * 1099511628211u;
    printf("%s: %ld bytes, hash %016lx\n", path, size, hash);
    check("size", size == before.st_size);
    check("seek", lseek(fd, -1, SEEK_END) == size - 1 && lseek(fd, 0, SEEK_CUR) == size - 1);
    check("read-only", write(fd, "x", 1) == -1 && errno == EBADF);
    close(fd);
    check("closed", read(fd, buffer, 1) == -1 && errno == EBADF);
}

static void write_and_read_back(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
    check("create", fd >= 0);
    check("exclusive", open(path, O_RDWR | O_CREAT | O_EXCL, 0600) == -1 && errno == EEXIST);
    struct iovec parts[2] = {{"hello ", 6}, {"world", 5}};
    check("writev", writev(fd, parts, 2) == 11);
    check("hole", lseek(fd, 10000, SEEK_SET) == 10000 && write(fd, "!", 1) == 1);
    char text[12] = "", hole = 1;
    check("pread", pread(fd, text, 11, 0) == 11 && strcmp(text, "hello world") == 0);
    check("hole is zero", pread(fd, &hole, 1, 5000) == 1 && hole == 0);
    check("end", pread(fd, &hole, 1, 10001) == 0);
    check("truncate", ftruncate(fd, 5) == 0 && lseek(fd, 0, SEEK_END) == 5);
    int copy = dup(fd);
    check("dup shares the offset", lseek(copy, 2, SEEK_SET) == 2 && lseek(fd, 0, SEEK_CUR) == 2);
    close(copy), close(fd);
    fd = open(path, O_WRONLY | O_APPEND);
    check("append", write(fd, "+", 1) == 1 && lseek(fd, 0, SEEK_CUR) == 6);
    close(fd);
}

static int count_entries(const char *path)
{
    DIR *dir = opendir(path);
    int count = 0;
    if (dir)
        for (struct dirent *entry; (entry = readdir(dir));)
            count += entry->d_name[0] != '.';
    if (dir)
        closedir(dir);
    return count;
}

static void directories(const char *dir)
{
    char path[128];
    check("mkdir", mkdir(dir, 0700) == 0);
    for (int i = 0; i < 100; i++) {
        snprintf(path, sizeof path, "%s/entry%d", dir, i);
        close(open(path, O_WRONLY | O_CREAT, 0600));
    }
    check("getdents", count_entries(dir) == 100);
    check("not empty", rmdir(dir) == -1 && errno == ENOTEMPTY);
    for (int i = 0; i < 100; i++) {
        snprintf(path, sizeof path, "%s/entry%d", dir, i);
        unlink(path);
    }
    check("unlink", count_entries(dir) == 0 && rmdir(dir) == 0);
    check("gone", access(dir, F_OK) == -1 && errno == ENOENT);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: files FILE\n");
        return 2;
    }
    read_all(argv[1]);
    char path[64], dir[64];
    snprintf(path, sizeof path, "/tmp/radixvm-files-%d", (int)getpid());
    snprintf(dir, sizeof dir, "/tmp/radixvm-files-%d.d", (int)getpid());
    write_and_read_back(path);
    check("remove", unlink(path) == 0 && access(path, F_OK) == -1);
    directories(dir);
    check("no such file", open("/tmp/no/such/file", O_RDONLY) == -1 && errno == ENOENT);
    printf("files: %s\n", failures ? "FAILED" : "done");
    return failures != 0;
}
