/* Users, groups and capabilities: each part is tried by a child, which changes its own. Prints what Linux
 * prints for root. */
#define _GNU_SOURCE
#include <elf.h>
#include <fcntl.h>
#include <grp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "users.h"

enum { KILL = 5, SETGID = 6, SETUID = 7, SETPCAP = 8, BIND = 10 };

static uint64_t all;

static long get_caps(int pid, uint64_t *effective, uint64_t *permitted, uint64_t *inheritable) {
    struct header header = {0x20080522, pid};
    struct sets sets[2] = {0};
    long result = syscall(SYS_capget, &header, sets);
    *effective = sets[0].effective | (uint64_t)sets[1].effective << 32;
    *permitted = sets[0].permitted | (uint64_t)sets[1].permitted << 32;
    *inheritable = sets[0].inheritable | (uint64_t)sets[1].inheritable << 32;
    return result;
}

static long set_caps(uint64_t effective, uint64_t permitted, uint64_t inheritable) {
    struct header header = {0x20080522, 0};
    struct sets sets[2] = {{effective, permitted, inheritable}, {effective >> 32, permitted >> 32, inheritable >> 32}};
    return syscall(SYS_capset, &header, sets);
}

/* Prints a set: a container may have fewer capabilities than we. */
static void put_set(const char *name, uint64_t set) {
    if (set == all)
        printf(" %s all", name);
    else if (__builtin_popcountll(set) > 20)
        printf(" %s all but %llx", name, (unsigned long long)(all & ~set));
    else
        printf(" %s %llx", name, (unsigned long long)set);
}

static void show(const char *what) {
    uid_t real, effective, saved, groups[3];
    getresuid(&real, &effective, &saved);
    getresgid(&groups[0], &groups[1], &groups[2]);
    printf("%s: users %u %u %u %d groups %u %u %u %d", what, real, effective, saved, setfsuid(-1), groups[0], groups[1],
           groups[2], setfsgid(-1));
    uint64_t sets[3];
    get_caps(0, &sets[0], &sets[1], &sets[2]);
    put_set("effective", sets[0]);
    put_set("permitted", sets[1]);
    put_set("inheritable", sets[2]);
    printf("\n");
}

/* Prints the lines of a file in /proc that begin with one of the names, up to a zero. */
static void show_lines(const char *path, const char *const *names) {
    FILE *file = fopen(path, "r");
    static char line[4096];
    if (!file) {
        tell(path, -1);
        return;
    }
    while (fgets(line, sizeof line, file))
        for (int index = 0; names[index]; index++)
            if (strncmp(line, names[index], strlen(names[index])) == 0)
                printf("%s", line);
    fclose(file);
}

static void of_root(void) {
    show("root");
    tell("setuid of none", syscall(SYS_setuid, -1));
    tell("setgid of none", syscall(SYS_setgid, -1));
    tell("effective user", seteuid(ALICE));
    show("an effective user");
    tell("setuid of another", setuid(BOB));
    tell("setgid of another", setgid(BOB));
    tell("setgroups", setgroups(0, NULL));
    tell("back", seteuid(0));
    show("back");
    tell("setresuid", set3(SYS_setresuid, ALICE, BOB, CAROL));
    show("three users");
    tell("swapped", set3(SYS_setresuid, BOB, CAROL, ALICE));
    tell("a fourth", set3(SYS_setresuid, -1, 5, -1));
    tell("root again", setuid(0));
    tell("the saved one", setuid(ALICE));
    show("the saved one");
    tell("a real one", syscall(SYS_setreuid, ALICE, -1));
    show("a real one");
}

static void of_groups(void) {
    gid_t list[] = {50, 7, 30}, got[4] = {0};
    tell("setgroups", setgroups(3, list));
    tell("getgroups, number", getgroups(0, got));
    tell("getgroups, short", getgroups(2, got));
    tell("getgroups, negative", syscall(SYS_getgroups, -1, got));
    tell("getgroups", getgroups(4, got));
    printf("groups: %u %u %u\n", got[0], got[1], got[2]);
    tell("setgroups, too many", syscall(SYS_setgroups, 65537, list));
    tell("setgroups, no memory", syscall(SYS_setgroups, 3, 8));
    list[1] = -1;
    tell("setgroups, none", syscall(SYS_setgroups, 3, list));
    tell("setresgid", set3(SYS_setresgid, ALICE, BOB, CAROL));
    show("three groups");
    tell("setregid", syscall(SYS_setregid, BOB, CAROL));
    show("two groups");
    tell("setuid", setuid(ALICE));
    tell("setgid of the real one", setgid(BOB));
    tell("setgid of another", setgid(0));
    tell("setgroups", syscall(SYS_setgroups, 3, list));
    show_lines("/proc/self/status", (const char *const[]){"Uid:", "Gid:", "Groups:", "CapEff:", "NoNewPrivs:", NULL});
}

static void of_two_users(void) {
    tell("setreuid", syscall(SYS_setreuid, ALICE, 0));
    show("a real user");
    tell("setreuid, both", syscall(SYS_setreuid, 0, ALICE));
    show("both");
    tell("setreuid, back", syscall(SYS_setreuid, ALICE, 0));
    show("back");
    tell("setreuid, only the effective one", syscall(SYS_setreuid, -1, BOB));
    show("the effective one");
    tell("setreuid of another", syscall(SYS_setreuid, CAROL, -1));
    tell("setreuid of another", syscall(SYS_setreuid, -1, CAROL));
}

static void of_files(void) {
    printf("setfsuid: %d\n", setfsuid(ALICE));
    show("a user for files");
    printf("setfsgid: %d\n", setfsgid(ALICE));
    printf("setfsuid: %d\n", setfsuid(0));
    show("root for files");
    printf("setfsuid of none: %d\n", setfsuid(-1));
    tell("setuid", setuid(BOB));
    printf("setfsuid of another: %d\n", setfsuid(ALICE));
    printf("setfsuid: %d\n", setfsuid(BOB));
}

static void of_kept_capabilities(void) {
    tell("keep", prctl(PR_SET_KEEPCAPS, 2));
    tell("keep", prctl(PR_SET_KEEPCAPS, 1));
    tell("kept", prctl(PR_GET_KEEPCAPS));
    tell("bits", prctl(PR_GET_SECUREBITS));
    tell("setuid", setuid(ALICE));
    show("kept");
    tell("raise", set_caps(1 << SETUID, 1 << SETUID | 1 << KILL, 0));
    show("two kept");
    tell("more", set_caps(1 << SETUID, 1 << SETUID | 1 << KILL | 1 << SETPCAP, 0));
    tell("not permitted", set_caps(1 << SETPCAP, 1 << SETUID | 1 << KILL, 0));
    tell("inherited", set_caps(1 << SETUID, 1 << SETUID | 1 << KILL, 1 << BIND));
    tell("inherited", set_caps(1 << SETUID, 1 << SETUID | 1 << KILL, 1 << KILL));
    tell("setuid", setuid(BOB));
    show("another user");
    tell("setgid", setgid(BOB));
    tell("drop", prctl(PR_CAPBSET_DROP, KILL));
    tell("bits", prctl(PR_SET_SECUREBITS, 1));
}

static void of_bounds(void) {
    tell("read", prctl(PR_CAPBSET_READ, KILL));
    tell("read of none", prctl(PR_CAPBSET_READ, 64));
    tell("drop of none", prctl(PR_CAPBSET_DROP, 64));
    tell("drop", prctl(PR_CAPBSET_DROP, KILL));
    tell("read", prctl(PR_CAPBSET_READ, KILL));
    show("bounded");
    tell("inherit", set_caps(all, all, 1 << KILL));
    tell("bits", prctl(PR_SET_SECUREBITS, 0x10000));
    tell("locked", prctl(PR_SET_SECUREBITS, 0x20));
    tell("keep", prctl(PR_SET_KEEPCAPS, 1));
    tell("unlock", prctl(PR_SET_SECUREBITS, 0));
    tell("no root", prctl(PR_SET_SECUREBITS, 0x21));
    tell("bits", prctl(PR_GET_SECUREBITS));
}

static void of_ambient(void) {
    tell("raise", prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, KILL, 0, 0));
    tell("inherit", set_caps(all, all, 1 << KILL));
    tell("raise", prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, KILL, 0, 0));
    tell("is set", prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, KILL, 0, 0));
    tell("is set, another", prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, BIND, 0, 0));
    tell("no such", prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, 64, 0, 0));
    tell("no such", prctl(PR_CAP_AMBIENT, 9, KILL, 0, 0));
    tell("more words", prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, KILL, 1, 0));
    tell("clear, more words", prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, KILL, 0, 0));
    tell("keep", prctl(PR_SET_KEEPCAPS, 1));
    tell("setuid", setuid(ALICE));
    tell("is set", prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, KILL, 0, 0));
    tell("raise", prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, KILL, 0, 0));
    tell("lower", prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_LOWER, KILL, 0, 0));
    tell("is set", prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, KILL, 0, 0));
}

static void of_versions(void) {
    struct header header = {1, 0};
    struct sets sets[2];
    tell("version", syscall(SYS_capget, &header, NULL));
    printf("version: %x\n", header.version);
    header.version = 1;
    tell("version", syscall(SYS_capget, &header, sets));
    tell("header", syscall(SYS_capget, 8, sets));
    header.pid = -1;
    tell("negative", syscall(SYS_capget, &header, sets));
    header.pid = 1 << 30;
    tell("no thread", syscall(SYS_capget, &header, sets));
    tell("no thread", syscall(SYS_capset, &header, sets));
    header.pid = getppid();
    tell("another", syscall(SYS_capget, &header, sets));
    tell("another", syscall(SYS_capset, &header, sets));
    header = (struct header){0x19980330, 0};
    tell("first", syscall(SYS_capget, &header, sets));
    tell("first", syscall(SYS_capset, &header, sets));
    show("32 capabilities");
}

static void execute(const char *what) {
    fflush(stdout);
    execl("/proc/self/exe", "users", what, NULL);
    tell("exec", -1);
}

static void of_exec_ambient(void) {
    set_caps(all, all, 1 << KILL | 1 << BIND);
    prctl(PR_SET_KEEPCAPS, 1);
    set3(SYS_setresgid, ALICE, ALICE, ALICE);
    set3(SYS_setresuid, ALICE, ALICE, ALICE);
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, KILL, 0, 0);
    execute("ambient");
}

static void of_exec_plain(void) {
    gid_t list[] = {7, 50};
    setgroups(2, list);
    set3(SYS_setresgid, BOB, BOB, BOB);
    set3(SYS_setresuid, ALICE, ALICE, ALICE);
    execute("plain");
}

static void of_exec_saved(void) {
    set3(SYS_setresuid, ALICE, BOB, 0);
    execute("saved");
}

static void of_exec_root(void) {
    set3(SYS_setresuid, ALICE, 0, BOB);
    execute("root");
}

static void of_exec_real_root(void) {
    set3(SYS_setresuid, 0, ALICE, ALICE);
    execute("real root");
}

static void of_privileges(void) {
    tell("more words", prctl(PR_SET_NO_NEW_PRIVS, 1, 1, 0, 0));
    tell("clear", prctl(PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0));
    tell("get", prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
    tell("set", prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    tell("get", prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
    set_caps(1 << KILL, 1 << KILL, 0);
    execute("no new privileges");
}

static void tell_open(const char *path, int flags);

/* The program after an exec. */
static int executed(const char *what) {
    show(what);
    printf("auxv: %lu %lu %lu %lu %lu\n", getauxval(AT_UID), getauxval(AT_EUID), getauxval(AT_GID), getauxval(AT_EGID),
           getauxval(AT_SECURE));
    printf("ambient: %d, kept: %d, no new: %d, groups: %d\n", prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, KILL, 0, 0),
           prctl(PR_GET_KEEPCAPS), prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), getgroups(0, NULL));
    if (strcmp(what, "proc") != 0)
        return 0;
    tell_owner("/proc/self/");
    tell_owner("/proc/self/status");
    tell_owner("/proc/self/environ");
    tell_owner("/proc/self/fd/");
    tell_owner("/proc/1/fd/");
    tell_owner("/proc/1/environ");
    tell_owner("/proc/1/maps");
    tell_owner("/proc/uptime");
    tell_open("/proc/self/environ", O_RDONLY);
    tell_open("/proc/self/exe", O_RDONLY);
    tell_open("/proc/self/fd/1", O_PATH);
    return 0;
}

static void *changed(void *_) {
    syscall(SYS_setresuid, ALICE, ALICE, ALICE);
    return (void *)(uintptr_t)syscall(SYS_geteuid);
}

static void *unchanged(void *_) {
    return (void *)(uintptr_t)getuid();
}

static void of_threads(void) {
    pthread_t thread;
    void *result;
    pthread_create(&thread, NULL, changed, NULL);
    pthread_join(thread, &result);
    printf("thread: %ld, main: %d\n", (long)(uintptr_t)result, getuid());
    setuid(BOB);
    pthread_create(&thread, NULL, unchanged, NULL);
    pthread_join(thread, &result);
    printf("thread: %ld, main: %d\n", (long)(uintptr_t)result, getuid());
}

/* Sends a name by a pair of sockets. */
static void send_name(const char *what, int user, int group) {
    int pair[2], on = 1;
    socketpair(AF_UNIX, SOCK_DGRAM, 0, pair);
    setsockopt(pair[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof on);
    union {
        char bytes[CMSG_SPACE(sizeof(struct ucred))];
        struct cmsghdr align;
    } room = {0};
    char byte = 'x';
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &room, .msg_controllen = sizeof room};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_len = CMSG_LEN(sizeof(struct ucred));
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_CREDENTIALS;
    struct ucred name = {getpid(), user, group};
    memcpy(CMSG_DATA(head), &name, sizeof name);
    long sent = sendmsg(pair[0], &message, 0);
    tell(what, sent);
    if (sent < 0)
        send(pair[0], &byte, 1, 0);
    message.msg_controllen = sizeof room;
    memset(&room, 0, sizeof room);
    recvmsg(pair[1], &message, 0);
    memcpy(&name, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof name);
    printf("name: %d %u %u\n", name.pid == getpid(), name.uid, name.gid);
    close(pair[0]);
    close(pair[1]);
}

static void of_names(void) {
    send_name("root's", 0, 0);
    send_name("another's", ALICE, BOB);
    set3(SYS_setresgid, ALICE, BOB, CAROL);
    set3(SYS_setresuid, ALICE, BOB, CAROL);
    send_name("own", CAROL, CAROL);
    send_name("another user's", 0, CAROL);
    send_name("another group's", ALICE, 0);
}

static void tell_open(const char *path, int flags) {
    int file = open(path, flags, 0640);
    printf("open %s %x: %s\n", path, flags, file < 0 ? strerror(errno) : "ok");
    close(file);
}

static void of_owners(void) {
    umask(022);
    make("file", ALICE, BOB, 06755);
    tell_owner("file");
    tell("chown", chown("file", -1, CAROL));
    tell_owner("file");
    chmod("file", 06744);
    tell("chown", chown("file", BOB, -1));
    tell_owner("file");
    make_directory("place", ALICE, BOB, 06755);
    tell("chown", chown("place", BOB, CAROL));
    tell_owner("place");
    close(open("place/file", O_CREAT | O_WRONLY, 0666));
    mkdir("place/inside", 0777);
    tell("symlink", symlink("nowhere", "place/link"));
    tell_owner("place/file");
    tell_owner("place/inside");
    tell_owner("place/link");
    tell("lchown", lchown("place/link", ALICE, ALICE));
    tell_owner("place/link");
    tell("fchownat", fchownat(AT_FDCWD, "place/link", BOB, BOB, AT_SYMLINK_NOFOLLOW));
    tell_owner("place/link");
    /* The structure is not in all C libraries: its owner is in these words. */
    uint32_t more[64];
    tell("statx", syscall(SYS_statx, AT_FDCWD, "place/link", AT_SYMLINK_NOFOLLOW, 0x7ff, more));
    printf("statx: %u %u\n", more[5], more[6]);
    setfsuid(ALICE);
    setfsgid(BOB);
    int pipes[2];
    struct stat stat;
    tell("pipe", pipe(pipes));
    fstat(pipes[0], &stat);
    printf("pipe: %u %u %o\n", stat.st_uid, stat.st_gid, stat.st_mode);
    int socket_file = socket(AF_UNIX, SOCK_STREAM, 0);
    fstat(socket_file, &stat);
    printf("socket: %u %u %o\n", stat.st_uid, stat.st_gid, stat.st_mode);
    setfsuid(0);
    chown("place", 0, CAROL);
    chmod("place", 02777);
    make("place/program", 0, 0, 06755);
    as_alice();
    close(open("place/hers", O_CREAT | O_WRONLY, 0666));
    tell_owner("place/hers");
    tell("give", chown("place/hers", BOB, -1));
    tell("keep", chown("place/hers", ALICE, -1));
    tell("nothing", chown("place/file", -1, -1));
    tell("nothing of a set-id program", chown("place/program", -1, -1));
    tell_owner("place/program");
    tell("group", chown("place/hers", -1, ALICE));
    tell("further group", chown("place/hers", -1, CAROL));
    tell("another group", chown("place/hers", -1, BOB));
    tell("another's group", chown("place/file", -1, CAROL));
    tell("chmod", chmod("place/hers", 06777));
    tell_owner("place/hers");
    tell("group", chown("place/hers", -1, ALICE));
    tell_owner("place/hers");
    tell("chmod of another's", chmod("place/file", 0777));
}

static void of_rights(void) {
    umask(0);
    make("rw-------", 0, 0, 0600);
    make("rw-r--r--", 0, 0, 0644);
    make("---rw-rw-", ALICE, ALICE, 066);
    make("rw-rw---- of carol", 0, CAROL, 0660);
    make("rw----rw- of carol", 0, CAROL, 0606);
    make("rwx------", 0, 0, 0700);
    make_directory("open", 0, 0, 0755);
    make_directory("closed", 0, 0, 0700);
    make_directory("search", 0, 0, 0711);
    make_directory("blind", 0, 0, 0744);
    make_directory("sticky", 0, 0, 01777);
    make_directory("hers", ALICE, ALICE, 0700);
    make("closed/file", 0, 0, 0666);
    make("search/file", 0, 0, 0666);
    make("blind/file", 0, 0, 0666);
    make("sticky/roots", 0, 0, 0666);
    make("sticky/hers", ALICE, ALICE, 0600);
    make_directory("sticky/place", 0, 0, 0777);
    make("hers/roots", 0, 0, 0600);
    make("program", 0, 0, 0644);
    tell("root executes it", execl("program", "program", NULL));
    tell("root may", access("program", X_OK));
    tell_open("rw-------", O_RDWR);
    as_alice();
    const char *names[] = {"rw-------", "rw-r--r--", "---rw-rw-", "rw-rw---- of carol", "rw----rw- of carol", "rwx------"};
    for (size_t index = 0; index < sizeof names / sizeof *names; index++) {
        tell_open(names[index], O_RDONLY);
        tell_open(names[index], O_WRONLY);
        tell_open(names[index], O_RDWR);
        tell_open(names[index], O_RDONLY | O_TRUNC);
        tell_open(names[index], O_RDWR | O_CREAT);
        printf("access: %d %d %d %d\n", access(names[index], F_OK), access(names[index], R_OK), access(names[index], W_OK),
               access(names[index], X_OK));
        tell("execute", execl(names[index], "program", NULL));
        tell("truncate", truncate(names[index], 0));
        tell("now", utimensat(AT_FDCWD, names[index], NULL, 0));
        tell("then", utimensat(AT_FDCWD, names[index], (struct timespec[]){{1, 0}, {2, 0}}, 0));
    }
    tell_open("open", O_RDONLY | O_DIRECTORY);
    tell_open("closed", O_RDONLY | O_DIRECTORY);
    tell_open("closed", O_PATH);
    tell_open("closed/file", O_RDONLY);
    tell_open("closed/file", O_PATH);
    tell_open("closed/none", O_RDONLY);
    tell_open("search", O_RDONLY | O_DIRECTORY);
    tell_open("search/file", O_RDONLY);
    tell_open("search/none", O_RDONLY);
    tell_open("search/new", O_RDWR | O_CREAT);
    tell_open("blind", O_RDONLY | O_DIRECTORY);
    tell_open("blind/file", O_RDONLY);
    tell_open("open/new", O_RDWR | O_CREAT);
    tell_open("open/../rw-------", O_RDONLY);
    tell_open("open", O_TMPFILE | O_RDWR);
    tell_open("sticky", O_TMPFILE | O_RDWR);
    tell_open("rw-r--r--", O_RDONLY | O_NOATIME);
    tell_open("---rw-rw-", O_PATH);
    tell("chdir", chdir("closed"));
    tell("chdir", chdir("blind"));
    tell("chdir", chdir("search"));
    tell("chdir", chdir(".."));
    tell("mkdir", mkdir("open/new", 0777));
    tell("mkdir of one that exists", mkdir("sticky", 0777));
    tell("symlink", symlink("x", "open/new"));
    tell("link", link("---rw-rw-", "open/new"));
    tell("unlink", unlink("rw-r--r--"));
    tell("unlink of nothing", unlink("open/none"));
    tell("rmdir", rmdir("open"));
    tell("sticky, root's", unlink("sticky/roots"));
    tell("sticky, rename", rename("sticky/roots", "sticky/new"));
    tell("sticky, over root's", rename("sticky/hers", "sticky/roots"));
    tell("sticky, rmdir", rmdir("sticky/place"));
    tell("sticky, rename", rename("sticky/hers", "sticky/new"));
    tell("sticky, own", unlink("sticky/new"));
    tell("hers, root's", rename("hers/roots", "hers/new"));
    tell("hers, root's", unlink("hers/new"));
    tell("from there", rename("hers", "open/hers"));
    tell("stat in a closed one", access("closed/file", F_OK));
    tell("chmod", chmod("rw-r--r--", 0777));
    tell("chmod", chmod("---rw-rw-", 0600));
    tell_open("---rw-rw-", O_RDWR);
}

static void of_real_users(void) {
    make("hers", ALICE, ALICE, 0600);
    make("bobs", BOB, BOB, 0600);
    set3(SYS_setresuid, ALICE, BOB, 0);
    printf("real: %d %d\n", access("hers", R_OK), access("bobs", R_OK));
    printf("effective: %d %d\n", faccessat(AT_FDCWD, "hers", R_OK, AT_EACCESS), faccessat(AT_FDCWD, "bobs", R_OK, AT_EACCESS));
    tell_open("hers", O_RDONLY);
    tell_open("bobs", O_RDONLY);
    set3(SYS_setresuid, 0, 0, 0);
    set3(SYS_setresuid, ALICE, 0, 0);
    printf("real: %d %d\n", access("hers", R_OK), access("bobs", R_OK));
    tell_open("bobs", O_RDONLY);
    set3(SYS_setresuid, 0, ALICE, 0);
    printf("root: %d %d\n", access("hers", R_OK), access("bobs", R_OK));
    tell_open("bobs", O_RDONLY);
    show("after it");
}

static void run_copy(const char *path) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        execl(path, "users", path, NULL);
        tell("exec", -1);
        fflush(stdout);
        _exit(1);
    }
    waitpid(child, NULL, 0);
}

static void of_set_ids(void) {
    copy_program("bobs", BOB, BOB, 04755);
    copy_program("bobs group", BOB, BOB, 02755);
    copy_program("no group", BOB, BOB, 02744);
    copy_program("roots", 0, 0, 06755);
    copy_program("closed", 0, 0, 04700);
    as_alice();
    run_copy("./bobs");
    run_copy("./bobs group");
    run_copy("./no group");
    run_copy("./roots");
    run_copy("./closed");
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    run_copy("./roots");
}

static long connect_to(int file, const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strcpy(address.sun_path, path);
    return connect(file, (struct sockaddr *)&address, sizeof address);
}

static int listener(const char *path, mode_t mode) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strcpy(address.sun_path, path);
    int file = socket(AF_UNIX, SOCK_STREAM, 0);
    tell("bind", bind(file, (struct sockaddr *)&address, sizeof address));
    chmod(path, mode);
    listen(file, 5);
    return file;
}

static void of_sockets(void) {
    umask(022);
    listener("open socket", 0666);
    listener("closed socket", 0644);
    int ends[2], closed = socket(AF_UNIX, SOCK_DGRAM, 0);
    chmod(".", 0755);
    as_alice();
    int one = socket(AF_UNIX, SOCK_STREAM, 0);
    tell("closed", connect_to(one, "closed socket"));
    tell("open", connect_to(one, "open socket"));
    struct ucred name;
    socklen_t len = sizeof name;
    tell("peer", getsockopt(one, SOL_SOCKET, SO_PEERCRED, &name, &len));
    printf("peer: %u %u\n", name.uid, name.gid);
    tell("pair", socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    tell("peer", getsockopt(ends[0], SOL_SOCKET, SO_PEERCRED, &name, &len));
    printf("peer: %u %u\n", name.uid, name.gid);
    tell("datagram", connect_to(closed, "closed socket"));
    listener("new socket", 0666);
}

/* Starts a child that becomes a user and waits for its end. Returns its number when it has become that. */
static pid_t start_child(uid_t real, uid_t effective, uid_t saved) {
    int pipes[2];
    if (pipe(pipes) != 0)
        tell("pipe", -1);
    pid_t child = fork();
    if (child == 0) {
        char byte = 'x';
        setpgid(0, 0);
        set3(SYS_setresgid, real, effective, saved);
        set3(SYS_setresuid, real, effective, saved);
        if (write(pipes[1], &byte, 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    char byte;
    if (read(pipes[0], &byte, 1) != 1)
        tell("child", -1);
    close(pipes[0]);
    close(pipes[1]);
    return child;
}

static void of_signals(void) {
    const uid_t users[][3] = {{0, 0, 0}, {BOB, BOB, BOB}, {ALICE, ALICE, ALICE}, {ALICE, BOB, BOB}, {BOB, ALICE, BOB}, {BOB, BOB, ALICE}};
    enum { COUNT = sizeof users / sizeof *users };
    pid_t children[COUNT];
    for (int index = 0; index < COUNT; index++)
        children[index] = start_child(users[index][0], users[index][1], users[index][2]);
    fflush(stdout);
    pid_t alice = fork();
    if (alice == 0) {
        set3(SYS_setresgid, ALICE, ALICE, ALICE);
        set3(SYS_setresuid, ALICE, ALICE, ALICE);
        tell("to the first process", kill(1, 0));
        tell("to no process", kill(1 << 30, 0));
        siginfo_t info = {.si_code = SI_QUEUE};
        for (int index = 0; index < COUNT; index++) {
            pid_t child = children[index];
            printf("-> %u %u %u\n", users[index][0], users[index][1], users[index][2]);
            tell("nothing", kill(child, 0));
            tell("to the thread", syscall(SYS_tkill, child, 0));
            tell("SIGURG", syscall(SYS_tgkill, child, child, SIGURG));
            tell("to the group", kill(-child, 0));
            tell("continue", kill(child, SIGCONT));
            tell("queue", syscall(SYS_rt_sigqueueinfo, child, SIGURG, &info));
            tell("trace", syscall(SYS_ptrace, 0x4206, child, 0, 0));
            char byte;
            struct iovec here = {&byte, 1}, there = {(void *)&users, 1};
            tell("read memory", process_vm_readv(child, &here, 1, &there, 1, 0));
            struct rlimit limit;
            tell("limits", prlimit(child, RLIMIT_CORE, NULL, &limit));
            tell("limits from nowhere", syscall(SYS_prlimit64, child, RLIMIT_CORE, 8L, 0L));
            cpu_set_t set;
            sched_getaffinity(child, sizeof set, &set);
            tell("cores", sched_setaffinity(child, sizeof set, &set));
            tell("priority", setpriority(PRIO_PROCESS, child, 0));
            static const char *const files[] = {"status", "stat", "maps", "environ", "auxv", "mem", "exe", "fd/0"};
            char path[64], text[64];
            for (size_t file = 0; file < sizeof files / sizeof *files; file++) {
                snprintf(path, sizeof path, "/proc/%d/%s", child, files[file]);
                int opened = open(path, O_RDONLY);
                printf("%s: %s\n", files[file], opened < 0 ? strerror(errno) : "ok");
                close(opened);
            }
            static const char *const of_thread[] = {"mem", "environ", "maps", "auxv", "status"};
            for (size_t file = 0; file < sizeof of_thread / sizeof *of_thread; file++) {
                snprintf(path, sizeof path, "/proc/%d/task/%d/%s", child, child, of_thread[file]);
                int opened = open(path, O_RDONLY);
                printf("thread's %s: %s\n", of_thread[file], opened < 0 ? strerror(errno) : "ok");
                close(opened);
            }
            snprintf(path, sizeof path, "/proc/%d/exe", child);
            printf("readlink: %s\n", readlink(path, text, sizeof text) < 0 ? strerror(errno) : "ok");
        }
        fflush(stdout);
        _exit(0);
    }
    int status;
    waitpid(alice, &status, 0);
    for (int index = 0; index < COUNT; index++) {
        struct stat stat;
        char path[64];
        snprintf(path, sizeof path, "/proc/%d/status", children[index]);
        kill(children[index], SIGKILL);
        waitpid(children[index], &status, 0);
        printf("ended: %x %d\n", status, lstat(path, &stat));
    }
}

static void of_limits(void) {
    struct rlimit limit = {100, 200};
    tell("lower", setrlimit(RLIMIT_NOFILE, &limit));
    as_alice();
    limit.rlim_cur = 200;
    tell("up to the maximum", setrlimit(RLIMIT_NOFILE, &limit));
    limit.rlim_max = 201;
    tell("higher", setrlimit(RLIMIT_NOFILE, &limit));
    limit.rlim_max = 150;
    tell("below", setrlimit(RLIMIT_NOFILE, &limit));
    limit.rlim_cur = 150;
    tell("lower", prlimit(0, RLIMIT_NOFILE, &limit, NULL));
    tell("nicer", setpriority(PRIO_PROCESS, 0, 0));
    tell("less nice", setpriority(PRIO_PROCESS, 0, -1));
}

static int start_sleepers(int most) {
    int made = 0;
    pid_t child = 1;
    while (made < most && (child = fork()) > 0)
        made++;
    while (child == 0)
        pause();
    return made;
}

/* The tasks of one user do not count for another. */
static void of_task_limits(void) {
    struct rlimit limit = {20, 20};
    int pipes[2];
    if (pipe(pipes) != 0)
        tell("pipe", -1);
    setpgid(0, 0);
    signal(SIGTERM, SIG_IGN);
    fflush(stdout);
    pid_t other = fork();
    if (other == 0) {
        signal(SIGTERM, SIG_DFL);
        become(4001, 4001, 0, NULL);
        if (start_sleepers(30) != 30 || write(pipes[1], "x", 1) != 1)
            _exit(1);
        pause();
    }
    char byte;
    if (read(pipes[0], &byte, 1) != 1)
        tell("read", -1);
    pid_t child = fork();
    if (child == 0) {
        signal(SIGTERM, SIG_DFL);
        setrlimit(RLIMIT_NPROC, &limit);
        become(4002, 4002, 0, NULL);
        int made = start_sleepers(100);
        printf("made: %d, %s\n", made, strerror(errno));
        fflush(stdout);
        /* They would count in another run. */
        signal(SIGTERM, SIG_IGN);
        kill(0, SIGTERM);
        while (wait(NULL) > 0)
            ;
        _exit(0);
    }
    waitpid(child, NULL, 0);
    kill(0, SIGTERM);
    waitpid(other, NULL, 0);
}

static void of_proc(void) {
    become(ALICE, BOB, 0, NULL);
    fflush(stdout);
    execl("/proc/self/exe", "users", "proc", NULL);
}

static const struct part PARTS[] = {
    {"root", of_root},
    {"groups", of_groups},
    {"two users", of_two_users},
    {"files", of_files},
    {"kept capabilities", of_kept_capabilities},
    {"bounds", of_bounds},
    {"ambient", of_ambient},
    {"versions", of_versions},
    {"exec with an ambient set", of_exec_ambient},
    {"exec", of_exec_plain},
    {"exec with a saved root", of_exec_saved},
    {"exec as root", of_exec_root},
    {"exec as a real root", of_exec_real_root},
    {"no new privileges", of_privileges},
    {"threads", of_threads},
    {"names", of_names},
    {"owners", of_owners},
    {"rights", of_rights},
    {"real users", of_real_users},
    {"set-id programs", of_set_ids},
    {"sockets", of_sockets},
    {"signals", of_signals},
    {"limits", of_limits},
    {"limits of tasks", of_task_limits},
    {"proc", of_proc},
};

int main(int count, char **words) {
    uint64_t permitted, inheritable;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (count > 1) {
        all = strtoull(getenv("ALL"), NULL, 16);
        return executed(words[1]);
    }
    get_caps(0, &all, &permitted, &inheritable);
    char text[32];
    snprintf(text, sizeof text, "%llx", (unsigned long long)all);
    setenv("ALL", text, 1);
    run_parts("/tmp/of-users", PARTS, sizeof PARTS / sizeof *PARTS);
    return 0;
}
