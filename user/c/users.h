/* Users, their files and set-id programs, for programs that try each part in a child. Included after
 * _GNU_SOURCE. */
#include <fcntl.h>
#include <ftw.h>
#include <grp.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tell.h"

enum { ALICE = 1000, BOB = 1001, CAROL = 1002 };

/* The arguments of capget and capset. */
struct header {
    uint32_t version;
    int pid;
};
struct sets {
    uint32_t effective, permitted, inheritable;
};

/* A part of a test. */
struct part {
    const char *name;
    void (*run)(void);
};

/* The plain calls of the C library send every change to all threads; these are of one thread. */
static inline long set3(long number, int real, int effective, int saved) {
    return syscall(number, (uid_t)real, (uid_t)effective, (uid_t)saved);
}

/* Becomes a user with these groups. */
static inline void become(uid_t user, gid_t group, size_t count, const gid_t *list) {
    setgroups(count, list);
    set3(SYS_setresgid, group, group, group);
    set3(SYS_setresuid, user, user, user);
}

static inline void as_alice(void) {
    become(ALICE, ALICE, 1, &(gid_t){CAROL});
}

static inline void tell_owner(const char *path) {
    struct stat stat;
    if (lstat(path, &stat) != 0)
        tell(path, -1);
    else
        printf("%s: %u %u %o\n", path, stat.st_uid, stat.st_gid, stat.st_mode);
}

/* Makes a file with an owner and permissions. */
static inline void make(const char *path, uid_t user, gid_t group, mode_t mode) {
    close(open(path, O_CREAT | O_WRONLY | O_EXCL, 0600));
    if (chown(path, user, group) != 0 || chmod(path, mode) != 0)
        tell(path, -1);
}

static inline void make_directory(const char *path, uid_t user, gid_t group, mode_t mode) {
    if (mkdir(path, 0700) != 0 || chown(path, user, group) != 0 || chmod(path, mode) != 0)
        tell(path, -1);
}

static inline void copy_program(const char *to, uid_t user, gid_t group, mode_t mode) {
    static char bytes[1 << 16];
    int from = open("/proc/self/exe", O_RDONLY), file = open(to, O_CREAT | O_WRONLY | O_TRUNC, 0755);
    for (long got; (got = read(from, bytes, sizeof bytes)) > 0;)
        if (write(file, bytes, got) != got)
            tell("write", -1);
    close(from);
    close(file);
    if (chown(to, user, group) != 0 || chmod(to, mode) != 0)
        tell(to, -1);
}

static inline int remove_one(const char *path, const struct stat *_, int kind, struct FTW *place) {
    return remove(path);
}

/* Makes an empty directory for a part, and goes there. */
static inline void begin_place(const char *place) {
    nftw(place, remove_one, 9, FTW_DEPTH | FTW_PHYS);
    if (mkdir(place, 0755) != 0 || chdir(place) != 0)
        tell(place, -1);
}

/* Runs each part in a child, in a directory of its own. */
static inline void run_parts(const char *place, const struct part *parts, size_t count) {
    for (size_t index = 0; index < count; index++) {
        printf("-- %s\n", parts[index].name);
        fflush(stdout);
        begin_place(place);
        pid_t child = fork();
        if (child == 0) {
            parts[index].run();
            fflush(stdout);
            _exit(0);
        }
        int status;
        waitpid(child, &status, 0);
        if (status != 0)
            printf("status: %x\n", status);
    }
}
