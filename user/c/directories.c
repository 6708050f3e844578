/* Names: makes, links, renames and removes files and directories below /tmp, from the current directory, from
 * a directory's descriptor and through symbolic links, and checks the errors that Linux gives.
 *
 * directories [MANY]: exits with 0 if everything was as it must be. With an argument it makes and removes
 * that number of directories, one at a time. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

static int touch(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0644);
    return fd >= 0 && close(fd) == 0;
}

static int is(const char *path, mode_t type, nlink_t links)
{
    struct stat stat;
    return lstat(path, &stat) == 0 && (stat.st_mode & S_IFMT) == type && (type == S_IFDIR || stat.st_nlink == links);
}

static void directories(void)
{
    check("mkdir", mkdir("d", 0777) == 0 && mkdir("d/e/", 0700) == 0 && is("d/e", S_IFDIR, 2));
    check("mkdir twice", fails(mkdir("d", 0777), EEXIST));
    check("mkdir nowhere", fails(mkdir("x/y", 0777), ENOENT));
    check("mkdir below a file", touch("f") && fails(mkdir("f/y", 0777), ENOTDIR));
    check("rmdir full", fails(rmdir("d"), ENOTEMPTY));
    check("rmdir dots", fails(rmdir("d/."), EINVAL) && fails(rmdir("d/e/.."), ENOTEMPTY));
    check("rmdir file", fails(rmdir("f"), ENOTDIR));
    check("unlink directory", fails(unlink("d"), EISDIR));
    check("file with a slash", fails(open("f/", O_RDONLY), ENOTDIR));
    check("open for writing", fails(open("d", O_RDWR), EISDIR));
}

static void renames(void)
{
    check("into itself", fails(rename("d", "d/e/g"), EINVAL));
    check("file over directory", fails(rename("f", "d"), EISDIR));
    check("directory over file", fails(rename("d", "f"), ENOTDIR));
    check("over its parent", fails(rename("d/e", "d"), ENOTEMPTY));
    check("mkdir deeper", mkdir("d/e/g", 0777) == 0);
    check("over its grandparent", fails(rename("d/e/g", "d"), ENOTEMPTY));
    check("over an empty directory", rename("d/e/g", "d/h") == 0 && rename("d/h", "d/e") == 0 && is("d/e", S_IFDIR, 2));
    check("of the current directory", fails(rename(".", "q"), EBUSY));
    check("to another directory", rename("f", "d/e/f") == 0 && fails(access("f", F_OK), ENOENT));
    check("over a file", touch("g") && rename("g", "d/e/f") == 0 && fails(unlink("g"), ENOENT));
    check("to its own name", rename("d/e/f", "d/e/f") == 0 && is("d/e/f", S_IFREG, 1));
}

static void links(void)
{
    char target[8] = "";
    check("hard link", link("d/e/f", "l") == 0 && is("l", S_IFREG, 2));
    check("hard link to a directory", fails(link("d", "m"), EPERM));
    check("rename to another link", rename("l", "d/e/f") == 0 && is("l", S_IFREG, 2));
    check("unlink one", unlink("l") == 0 && is("d/e/f", S_IFREG, 1));
    check("symlink", symlink("d/e", "s") == 0 && is("s", S_IFLNK, 1));
    check("readlink", readlink("s", target, sizeof target) == 3 && memcmp(target, "d/e", 3) == 0);
    check("through it", access("s/f", F_OK) == 0 && access("s/../e/./f", F_OK) == 0);
    check("not through it", fails(open("s", O_RDONLY | O_NOFOLLOW), ELOOP));
    check("loop", symlink("loop", "loop") == 0 && fails(open("loop", O_RDONLY), ELOOP));
    check("create through one", symlink("made", "to-make") == 0 && close(open("to-make", O_CREAT | O_WRONLY, 0644)) == 0);
    check("made", is("made", S_IFREG, 1) && fails(open("to-make", O_CREAT | O_EXCL | O_WRONLY, 0644), EEXIST));
    check("removed", unlink("s") == 0 && unlink("loop") == 0 && unlink("made") == 0 && unlink("to-make") == 0);
}

/* Each link is almost as long as a path may be, and 40 of them may be followed. */
static void long_links(void)
{
    enum { LINKS = 41, TARGET = 4000 };
    char name[8], target[PATH_MAX];
    int made = touch("link0");
    for (int i = 1; i <= LINKS; i++) {
        for (int at = 0; at < TARGET; at += 2)
            memcpy(target + at, "./", 2);
        snprintf(target + TARGET, sizeof target - TARGET, "link%d", i - 1);
        snprintf(name, sizeof name, "link%d", i);
        made += symlink(target, name) == 0;
    }
    check("long links", made == LINKS + 1 && access("link40", F_OK) == 0 && fails(access("link41", F_OK), ELOOP));
    for (int i = 0; i <= LINKS; i++) {
        snprintf(name, sizeof name, "link%d", i);
        made -= unlink(name) == 0;
    }
    check("unlinked", made == 0);
}

/* A removed directory knows its parent as long as it is open. */
static void removed(const char *top)
{
    struct stat above, expected;
    check("nest", mkdir("r", 0777) == 0 && mkdir("r/s", 0777) == 0 && mkdir("r/s/t", 0777) == 0);
    int fd = open("r/s/t", O_RDONLY | O_DIRECTORY);
    check("gone", fd >= 0 && rmdir("r/s/t") == 0 && rmdir("r/s") == 0 && rmdir("r") == 0);
    check("its place", fstatat(fd, "../../..", &above, 0) == 0 && stat(top, &expected) == 0 && above.st_ino == expected.st_ino);
    check("nothing new above it", fails(openat(fd, "../new", O_CREAT | O_WRONLY, 0644), ENOENT));
    close(fd);
}

static void places(const char *top)
{
    char path[PATH_MAX], expected[PATH_MAX];
    int fd = open("d/e", O_RDONLY | O_DIRECTORY);
    check("openat", fd >= 0 && close(openat(fd, "f", O_RDONLY)) == 0 && fails(openat(999, "f", O_RDONLY), EBADF));
    check("chdir", chdir("d") == 0 && fchdir(fd) == 0);
    snprintf(expected, sizeof expected, "%s/d/e", top);
    check("getcwd", getcwd(path, sizeof path) && strcmp(path, expected) == 0);
    check("getcwd too short", getcwd(path, 3) == NULL && errno == ERANGE);
    check("its end", unlink("f") == 0 && rmdir("../e") == 0 && getcwd(path, sizeof path) == NULL && errno == ENOENT);
    check("nothing new there", fails(open("new", O_CREAT | O_WRONLY, 0644), ENOENT));
    check("back", chdir(top) == 0 && rmdir("d") == 0);
    close(fd);
}

/* Sets the directory's time to `second`, and returns whether `stat` reports it. */
static int set_time(const char *path, time_t second)
{
    struct timespec times[2] = {{second, 0}, {second, 7}};
    struct stat stat;
    return utimensat(AT_FDCWD, path, times, 0) == 0 && lstat(path, &stat) == 0 && stat.st_mtim.tv_sec == second && stat.st_mtim.tv_nsec == 7;
}

static int changed_now(const char *path)
{
    struct stat stat;
    time_t now = time(NULL);
    return lstat(path, &stat) == 0 && stat.st_mtim.tv_sec >= now - 100 && stat.st_mtim.tv_sec <= now + 1;
}

/* Each change of a name sets the time of its directory, also if that lies in the future. */
static void times(void)
{
    enum { PAST = 1000000000, FUTURE = 2000000000 };
    check("a time", mkdir("t", 0777) == 0 && mkdir("u", 0777) == 0 && changed_now("t") && set_time("t", FUTURE));
    check("of a new file", touch("t/a") && changed_now("t"));
    check("the past", set_time("t", PAST) && set_time("t", FUTURE));
    check("of a new directory", mkdir("t/b", 0777) == 0 && changed_now("t") && set_time("t", PAST));
    check("of a new link", symlink("a", "t/c") == 0 && link("t/a", "t/d") == 0 && changed_now("t") && set_time("t", FUTURE));
    check("of a rename", rename("t/a", "t/e") == 0 && changed_now("t") && set_time("t", PAST) && set_time("u", FUTURE));
    check("of both directories", rename("t/e", "u/e") == 0 && changed_now("t") && changed_now("u") && set_time("t", FUTURE));
    check("of a file that stays", set_time("u/e", PAST) && set_time("u", PAST) && fails(mkdir("u/e", 0777), EEXIST) && !changed_now("u"));
    check("of what goes", unlink("t/c") == 0 && changed_now("t") && set_time("t", PAST) && rmdir("t/b") == 0 && changed_now("t"));
    check("all goes", unlink("t/d") == 0 && unlink("u/e") == 0 && rmdir("t") == 0 && rmdir("u") == 0);
}

static void lengths(void)
{
    char path[5000];
    memset(path, 'a', sizeof path);
    path[sizeof path - 1] = 0;
    check("path too long", fails(open(path, O_RDONLY), ENAMETOOLONG));
    path[256] = 0;
    check("name too long", fails(open(path, O_RDONLY), ENAMETOOLONG));
    path[255] = 0;
    check("longest name", touch(path) && unlink(path) == 0);
    for (int i = 0; i < 4094; i += 2)
        memcpy(path + i, "./", 3);
    check("longest path", access(path, F_OK) == 0);
    check("empty path", fails(open("", O_RDONLY), ENOENT));
}

/* Removed directories are freed in time for the next ones. */
static void many(int count)
{
    int done = 0;
    while (done < count && mkdir("m", 0777) == 0 && rmdir("m") == 0)
        done++;
    if (done != count)
        perror("mkdir or rmdir");
    check("many", done == count);
}

int main(int argc, char **argv)
{
    char top[] = "/tmp/radixvm-directories-XXXXXX";
    if (!mkdtemp(top) || chdir(top)) {
        perror(top);
        return 1;
    }
    directories();
    renames();
    links();
    places(top);
    times();
    lengths();
    long_links();
    removed(top);
    if (argc > 1)
        many(atoi(argv[1]));
    check("top", chdir("/") == 0 && rmdir(top) == 0);
    printf("directories: %s\n", failures ? "FAILED" : "done");
    return failures != 0;
}
