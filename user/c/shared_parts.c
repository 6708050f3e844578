/* kcmp, which compares parts of threads and processes, and pidfd_getfd, which copies a descriptor. Prints
 * what they return, an order as "another". */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FILE_OF, VM, FILES, FS, SIGHAND, IO };

static long compare(pid_t one, pid_t other, int what, long first, long second)
{
    return syscall(SYS_kcmp, one, other, what, first, second);
}

static const char *name_of(int error)
{
    switch (error) {
    case EBADF: return "EBADF";
    case EINVAL: return "EINVAL";
    case EPERM: return "EPERM";
    case ESRCH: return "ESRCH";
    }
    return "another error";
}

static void say(const char *what, long result)
{
    if (result < 0)
        printf("%s: %s\n", what, name_of(errno));
    else
        printf("%s: %s\n", what, result == 0 ? "the same" : result < 3 ? "another" : "no order");
}

static void *wait_for_end(void *word)
{
    pid_t *tid = word;
    __atomic_store_n(tid, (pid_t)syscall(SYS_gettid), __ATOMIC_RELEASE);
    pause();
    return NULL;
}

/* Waits until it is killed. */
static pid_t child(unsigned long flags)
{
    pid_t pid = syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0);
    if (pid == 0)
        for (;;)
            pause();
    return pid;
}

static int wait_on_stack(void *unused)
{
    for (;;)
        pause();
    return unused != NULL;
}

/* Makes one that has this memory, on a stack of its own. */
static pid_t sharer(int flags)
{
    static char stack[1 << 16] __attribute__((aligned(16)));
    return clone(wait_on_stack, stack + sizeof stack, flags | SIGCHLD, NULL);
}

static void end(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static void all_of(const char *name, pid_t one, pid_t other)
{
    static const char *const parts[] = {"memory", "files", "directory", "actions", "contexts"};
    for (int what = VM; what <= IO; what++) {
        printf("%s, ", name);
        say(parts[what - VM], compare(one, other, what, 0, 0));
    }
}

static void descriptors(void)
{
    pid_t own = getpid();
    int file = open("/", O_RDONLY), copy = dup(file), other = open("/", O_RDONLY);
    say("a descriptor and itself", compare(own, own, FILE_OF, file, file));
    say("a copy", compare(own, own, FILE_OF, file, copy));
    say("another open", compare(own, own, FILE_OF, file, other));
    long there = compare(own, own, FILE_OF, file, other), back = compare(own, own, FILE_OF, other, file);
    printf("an order both ways: %s\n", there + back == 3 && there == compare(own, own, FILE_OF, file, other) ? "yes" : "no");
    say("no descriptor", compare(own, own, FILE_OF, file, 900));
    say("a negative one", compare(own, own, FILE_OF, -1, file));
    pid_t forked = child(0);
    say("an inherited one", compare(own, forked, FILE_OF, file, file));
    end(forked);
    close(file), close(copy), close(other);
}

static void errors(void)
{
    pid_t own = getpid();
    say("no process", compare(own, 4000000, VM, 0, 0));
    say("no process first", compare(0, own, VM, 0, 0));
    say("no such part", compare(own, own, 8, 0, 0));
    say("a negative part", compare(own, own, -1, 0, 0));
}

static void copy_of(const char *name, int pidfd, int fd, unsigned flags)
{
    int got = syscall(SYS_pidfd_getfd, pidfd, fd, flags);
    if (got < 0) {
        printf("%s: %s\n", name, name_of(errno));
        return;
    }
    char text[8] = "";
    printf("%s: flags %d, read %zd", name, fcntl(got, F_GETFD), read(got, text, 5));
    printf(" \"%s\"\n", text);
    close(got);
}

/* A child has an end of a pipe that this process has closed. */
static void getfd(void)
{
    int ends[2], ready[2];
    if (pipe(ends) != 0 || pipe(ready) != 0 || write(ends[1], "hello there", 11) != 11)
        exit(1);
    pid_t pid = fork();
    if (pid == 0) {
        if (dup2(ends[0], 77) != 77 || write(ready[1], "!", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    char word;
    if (read(ready[0], &word, 1) != 1)
        exit(1);
    int pidfd = syscall(SYS_pidfd_open, pid, 0);
    close(ends[0]);
    copy_of("a copy", pidfd, 77, 0);
    copy_of("another", pidfd, 77, 0);
    copy_of("no descriptor", pidfd, 78, 0);
    copy_of("flags", pidfd, 77, 1);
    copy_of("no pidfd", ready[0], 77, 0);
    copy_of("nothing open", 555, 77, 0);
    kill(pid, SIGKILL);
    siginfo_t info;
    /* Older Linux finds the zombie, which has no descriptors. */
    waitid(P_PID, pid, &info, WEXITED | WNOWAIT);
    int got = syscall(SYS_pidfd_getfd, pidfd, 77, 0);
    printf("of a zombie: %s\n", got < 0 && (errno == ESRCH || errno == EBADF) ? "refused" : "wrong");
    waitpid(pid, NULL, 0);
    copy_of("of a process that ended", pidfd, 77, 0);
    close(pidfd);
}

int main(void)
{
    pthread_t thread;
    static pid_t tid;
    setvbuf(stdout, NULL, _IONBF, 0);
    if (compare(getpid(), getpid(), VM, 0, 0) < 0)
        return 97;
    descriptors();
    errors();
    pid_t own = getpid(), forked = child(0), sharing = child(CLONE_FILES | CLONE_FS);
    all_of("a child", own, forked);
    all_of("a child that shares files", own, sharing);
    all_of("two children", forked, sharing);
    end(forked), end(sharing);
    pid_t handlers = sharer(CLONE_VM | CLONE_SIGHAND);
    all_of("a child that shares memory and actions", own, handlers);
    end(handlers);
    pthread_create(&thread, NULL, wait_for_end, &tid);
    while (__atomic_load_n(&tid, __ATOMIC_ACQUIRE) == 0)
        sched_yield();
    all_of("a thread", own, tid);
    getfd();
    return 0;
}
