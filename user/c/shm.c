/* SysV shared memory: getting, attaching, detaching and removing segments, their errors, their counts over
 * fork, exec, exit, munmap and mremap. Prints what every Linux prints. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ipc.h"

#define PAGE 4096L
#ifndef SHM_EXEC
#define SHM_EXEC 0100000
#endif
#ifndef SHM_DEST
#define SHM_DEST 01000
#endif
#ifndef SHM_STAT_ANY
#define SHM_STAT_ANY 15
#endif

static key_t key;
static sigjmp_buf back;

static void jump(int signal)
{
    siglongjmp(back, signal);
}

/* Tells whether a call that returns a number that differs from system to system succeeds. */
static void succeeds(const char *what, long result)
{
    tell(what, result < 0 ? result : 0);
}

static long attached(int id)
{
    struct shmid_ds now;
    return shmctl(id, IPC_STAT, &now) < 0 ? -1 : (long)now.shm_nattch;
}

static volatile char *attach(int id, const void *at, int flags)
{
    /* The library's own function hides nothing, but its result is no number. */
    return (volatile char *)syscall(SYS_shmat, id, at, flags);
}

static void child(void (*call)(int), int id)
{
    finish(start_child(call, id));
}

static void getting(void)
{
    tell("no such key", shmget(key, PAGE, 0));
    tell("size 0", shmget(key, 0, IPC_CREAT | 0600));
    tell("the largest size and one", shmget(key, -1UL, IPC_CREAT | 0600));
    tell("more than there is", shmget(key, 1UL << 46, IPC_CREAT | 0600));
    int id = shmget(key, 5000, IPC_CREAT | 0640);
    succeeds("make", id);
    say("the same", shmget(key, 5000, 0) == id);
    say("size 0 of one that is there", shmget(key, 0, 0) == id);
    say("smaller", shmget(key, 1, IPC_CREAT) == id);
    tell("larger", shmget(key, 5001, 0));
    tell("exclusive", shmget(key, 5000, IPC_CREAT | IPC_EXCL));
    tell("exclusive, larger", shmget(key, 9000, IPC_CREAT | IPC_EXCL));
    say("exclusive alone", shmget(key, 5000, IPC_EXCL) == id);
    struct shmid_ds now;
    tell("stat", shmctl(id, IPC_STAT, &now));
    printf("key %d, mode %o, size %zu, attached %lu, maker %d, last %d, times %d %d %d\n", now.shm_perm.__key == key,
           now.shm_perm.mode, now.shm_segsz, (long)now.shm_nattch, now.shm_cpid == getpid(), now.shm_lpid, now.shm_atime != 0,
           now.shm_dtime != 0, now.shm_ctime != 0);
    now.shm_perm.mode = 0107;
    tell("set", shmctl(id, IPC_SET, &now));
    shmctl(id, IPC_STAT, &now);
    printf("mode %o\n", now.shm_perm.mode);
    tell("lock", shmctl(id, SHM_LOCK, 0));
    shmctl(id, IPC_STAT, &now);
    printf("mode %o\n", now.shm_perm.mode);
    tell("unlock", shmctl(id, SHM_UNLOCK, 0));
    shmctl(id, IPC_STAT, &now);
    printf("mode %o\n", now.shm_perm.mode);
    tell("unknown command", shmctl(id, 77, &now));
    tell("stat of a bad address", syscall(SYS_shmctl, id, IPC_STAT, 8));
    tell("set of a bad address", syscall(SYS_shmctl, id, IPC_SET, 8));
    tell("stat of a negative one", shmctl(-1, IPC_STAT, &now));
    tell("remove", shmctl(id, IPC_RMID, 0));
    tell("remove again", shmctl(id, IPC_RMID, 0));
    tell("stat", shmctl(id, IPC_STAT, &now));
    tell("get", shmget(key, PAGE, 0));
    tell("attach", (long)attach(id, 0, 0));
    int other = shmget(IPC_PRIVATE, 1, 0600), third = shmget(IPC_PRIVATE, 1, IPC_CREAT | IPC_EXCL | 0600);
    say("private ones differ", other >= 0 && third >= 0 && other != third && other != id);
    tell("remove", shmctl(other, IPC_RMID, 0));
    tell("remove", shmctl(third, IPC_RMID, 0));
}

static void attaching(void)
{
    int id = shmget(IPC_PRIVATE, 2 * PAGE + 5, 0600);
    volatile char *a = attach(id, 0, 0), *b = attach(id, 0, SHM_RDONLY);
    a[3] = 'x';
    say("both show it", b[3] == 'x' && b[2 * PAGE + 100] == 0);
    printf("attached %ld\n", attached(id));
    signal(SIGSEGV, jump);
    if (sigsetjmp(back, 1) == 0) {
        *(volatile char *)b = 1;
        puts("written");
    } else {
        puts("not written");
    }
    tell("make it writable", mprotect((void *)b, PAGE, PROT_READ | PROT_WRITE));
    tell("detach between", shmdt((void *)a + PAGE));
    tell("detach at no page", shmdt((void *)a + 1));
    tell("detach", shmdt((void *)a));
    tell("detach again", shmdt((void *)a));
    printf("attached %ld\n", attached(id));
    volatile char *place = mmap(0, 16 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    tell("over others", (long)attach(id, (void *)place, 0));
    tell("at no page", (long)attach(id, (void *)place + 5, 0));
    tell("replace nothing", (long)attach(id, 0, SHM_REMAP));
    tell("replace page 0", (long)attach(id, (void *)5, SHM_REMAP | SHM_RND));
    say("replace", attach(id, (void *)place, SHM_REMAP) == place && place[3] == 'x');
    munmap((void *)place + 8 * PAGE, 8 * PAGE);
    say("rounded", attach(id, (void *)place + 8 * PAGE + 77, SHM_RND) == place + 8 * PAGE);
    printf("attached %ld\n", attached(id));
    place[8 * PAGE] = 'y';
    say("the same memory", place[0] == 'y' && *b == 'y');
    tell("a negative one", (long)attach(-1, 0, 0));
    say("to run", (long)attach(id, (void *)place + 12 * PAGE, SHM_EXEC) > 0);
    printf("attached %ld\n", attached(id));
    shmdt((void *)place + 12 * PAGE);
    shmdt((void *)place + 8 * PAGE);
    shmdt((void *)place);
    shmdt((void *)b);
    struct shmid_ds now;
    shmctl(id, IPC_STAT, &now);
    printf("attached %ld, last %d, times %d %d\n", (long)now.shm_nattch, now.shm_lpid == getpid(), now.shm_atime != 0, now.shm_dtime != 0);
    munmap((void *)place, 16 * PAGE);
    a = attach(id, 0, 0);
    say("it stays", *a == 'y');
    tell("remove", shmctl(id, IPC_RMID, 0));
    shmctl(id, IPC_STAT, &now);
    printf("mode %o, attached %ld, key %d\n", now.shm_perm.mode, (long)now.shm_nattch, now.shm_perm.__key);
    b = attach(id, 0, 0);
    say("attached again", (long)b > 0 && *b == 'y');
    tell("remove again", shmctl(id, IPC_RMID, 0));
    shmdt((void *)a);
    printf("attached %ld\n", attached(id));
    shmdt((void *)b);
    tell("gone", attached(id));
}

static void unmapping(void)
{
    int id = shmget(IPC_PRIVATE, 8 * PAGE, 0600);
    volatile char *a = attach(id, 0, 0);
    a[5 * PAGE] = 'z';
    munmap((void *)a, PAGE);
    printf("without the first page %ld\n", attached(id));
    munmap((void *)a + 3 * PAGE, PAGE);
    printf("without a page between %ld\n", attached(id));
    mmap((void *)a + 6 * PAGE, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    printf("another page over it %ld\n", attached(id));
    tell("detach", shmdt((void *)a));
    printf("attached %ld\n", attached(id));
    say("the other page stays", a[6 * PAGE] == 0);
    munmap((void *)a + 6 * PAGE, PAGE);
    a = attach(id, 0, 0);
    say("it kept what was written", a[5 * PAGE] == 'z');
    munmap((void *)a, 8 * PAGE);
    printf("unmapped %ld\n", attached(id));
    a = attach(id, 0, 0);
    volatile char *place = mmap(0, 8 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    say("moved", mremap((void *)a, 8 * PAGE, 8 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)place) == place);
    printf("attached %ld\n", attached(id));
    tell("detach where it was", shmdt((void *)a));
    say("shown where it is", place[5 * PAGE] == 'z');
    tell("detach where it is", shmdt((void *)place));
    printf("attached %ld\n", attached(id));
    a = attach(id, 0, 0);
    say("shrunk", mremap((void *)a, 8 * PAGE, 2 * PAGE, 0) == a);
    printf("attached %ld\n", attached(id));
    munmap((void *)a, 2 * PAGE);
    printf("attached %ld\n", attached(id));
    tell("remove", shmctl(id, IPC_RMID, 0));
    tell("gone", attached(id));
}

/* Returns a place of that many free pages. */
static char *free_place(long pages)
{
    char *place = mmap(0, pages * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(place, pages * PAGE);
    return place;
}

/* Mappings that fail, second places, growth, and other segments where one was. */
static void changing(void)
{
    int a = shmget(IPC_PRIVATE, 4 * PAGE, 0600), b = shmget(IPC_PRIVATE, 2 * PAGE, 0600);
    char *place = free_place(32), *x = (char *)attach(a, place, 0);
    struct rlimit before, little;
    *x = 7;
    getrlimit(RLIMIT_AS, &before);
    little = before;
    little.rlim_cur = 1UL << 30;
    setrlimit(RLIMIT_AS, &little);
    say("too large", mmap(x, 4UL << 30, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED);
    setrlimit(RLIMIT_AS, &before);
    printf("attached %ld, shows %d\n", attached(a), *x);

    char *y = (char *)attach(b, place + 8 * PAGE, 0);
    say("a second place, over another", mremap(y, 0, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, x) == x);
    printf("attached %ld %ld\n", attached(a), attached(b));
    tell("detach", shmdt(x));
    printf("attached %ld %ld\n", attached(a), attached(b));
    x = mremap(y + PAGE, 0, PAGE, MREMAP_MAYMOVE);
    say("a second place", x != MAP_FAILED);
    printf("attached %ld\n", attached(b));
    tell("detach where its first page would be", shmdt(x - PAGE));
    printf("attached %ld\n", attached(b));
    tell("detach", shmdt(y));
    /* The rest of the first one goes. */
    munmap(place, 4 * PAGE);
    printf("attached %ld %ld\n", attached(a), attached(b));

    x = (char *)attach(a, place, 0);
    munmap(x, 2 * PAGE);
    attach(b, x, 0);
    tell("detach the lower one", shmdt(x));
    printf("attached %ld %ld\n", attached(a), attached(b));
    tell("detach the other", shmdt(x));
    printf("attached %ld %ld\n", attached(a), attached(b));

    unsigned char in[8];
    x = (char *)attach(b, place, 0);
    say("grown", mremap(x, 2 * PAGE, 6 * PAGE, 0) == x);
    munmap(x, PAGE);
    munmap(x + 3 * PAGE, PAGE);
    printf("attached %ld\n", attached(b));
    tell("detach", shmdt(x));
    tell("its end is left", mincore(x + 4 * PAGE, PAGE, in));
    printf("attached %ld\n", attached(b));
    munmap(x, 6 * PAGE);
    printf("attached %ld\n", attached(b));
    x = (char *)attach(b, place, 0);
    say("moved and grown", mremap(x, 2 * PAGE, 6 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, place + 8 * PAGE) == place + 8 * PAGE);
    tell("detach", shmdt(place + 8 * PAGE));
    tell("all of it", mincore(place + 13 * PAGE, PAGE, in));
    printf("attached %ld\n", attached(b));

    enum { MANY = 1000 };
    char *all = free_place(2 * MANY);
    for (int i = 0; i < MANY; i++)
        attach(b, all + 2 * (i * 7 % MANY) * PAGE, 0);
    printf("attached %ld\n", attached(b));
    munmap(all + PAGE, (MANY - 1) * PAGE);
    printf("attached %ld\n", attached(b));
    munmap(all, 2 * MANY * PAGE);
    printf("attached %ld\n", attached(b));

    tell("too low, and none", (long)attach(0x3fffffff, (void *)PAGE, 0));
    tell("at the end of all addresses", (long)attach(b, (void *)-(2 * PAGE), 0));
    tell("longer than a file", shmget(IPC_PRIVATE, 1UL << 63, 0600));
    struct shmid_ds now;
    shmctl(b, IPC_STAT, &now);
    now.shm_perm.uid = -1;
    tell("no user", shmctl(b, IPC_SET, &now));
    shmctl(a, IPC_RMID, 0);
    shmctl(b, IPC_RMID, 0);
}

static volatile char *shown;

static void in_child(int id)
{
    printf("child: attached %ld, shows %c\n", attached(id), *shown);
    *shown = 'c';
    tell("child: detach", shmdt((void *)shown));
    printf("child: attached %ld\n", attached(id));
    attach(id, 0, 0);
    attach(id, 0, 0);
    printf("child: attached %ld\n", attached(id));
}

static void keep(int id)
{
    printf("child: attached %ld\n", attached(id));
}

static void run_another(int id)
{
    char number[20];
    snprintf(number, sizeof number, "%d", id);
    printf("before: attached %ld\n", attached(id));
    fflush(stdout);
    execl("/proc/self/exe", "shm", "attached", number, (char *)0);
    perror("exec");
}

static int shared_by_threads;
static volatile int has_attached[4];

static void *in_thread(void *number)
{
    int at = (int)(long)number;
    attach(shared_by_threads, 0, 0);
    has_attached[at] = 1;
    pause();
    return 0;
}

static void with_threads(int id)
{
    pthread_t threads[4];
    shared_by_threads = id;
    for (int i = 0; i < 4; i++)
        pthread_create(threads + i, 0, in_thread, (void *)(long)i);
    /* Linux counts a call that is under way as one more. */
    for (int i = 0; i < 4; i++)
        while (!has_attached[i])
            ;
    printf("threads: attached %ld\n", attached(id));
}

static void forking(void)
{
    int id = shmget(IPC_PRIVATE, PAGE, 0600);
    shown = attach(id, 0, 0);
    *shown = 'p';
    child(in_child, id);
    printf("parent: attached %ld, shows %c\n", attached(id), *shown);
    child(run_another, id);
    printf("parent: attached %ld\n", attached(id));
    child(with_threads, id);
    printf("parent: attached %ld\n", attached(id));
    fflush(stdout);
    pid_t pid = vfork();
    if (pid == 0)
        _exit(0);
    waitpid(pid, 0, 0);
    printf("after vfork: attached %ld\n", attached(id));
    madvise((void *)shown, PAGE, MADV_DONTFORK);
    child(keep, id);
    madvise((void *)shown, PAGE, MADV_DOFORK);
    tell("remove", shmctl(id, IPC_RMID, 0));
    child(in_child, id);
    printf("parent: attached %ld, shows %c\n", attached(id), *shown);
    shmdt((void *)shown);
    tell("gone", attached(id));
}

static int ask(int command, void *into)
{
    return shmctl(0, command, into);
}

static void listing(void)
{
    int id = shmget(IPC_PRIVATE, 3 * PAGE + 1, 0600);
    volatile char *a = attach(id, 0, 0);
    memset((void *)a, 1, 3 * PAGE);
    say("listed", count_listed("/proc/sysvipc/shm", id, 3 * PAGE + 1, -1) == 1);
    struct shm_info all;
    struct shminfo most;
    int highest = highest_index(ask, SHM_INFO, &all, IPC_INFO, &most);
    say("an index", highest >= 0);
    say("counted", all.used_ids >= 1 && all.shm_tot >= 4 && all.shm_rss >= 3);
    printf("at least %lu, of a process %d\n", most.shmmin, most.shmseg == most.shmmni);
    int found = 0;
    for (int at = 0; at <= highest; at++) {
        struct shmid_ds now;
        if (shmctl(at, SHM_STAT, &now) == id)
            found += now.shm_segsz == 3 * PAGE + 1;
        if (shmctl(at, SHM_STAT_ANY, &now) == id)
            found++;
    }
    printf("found %d\n", found);
    struct shmid_ds now;
    tell("no such index", shmctl(highest + 40, SHM_STAT, &now));
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    while (fgets(line, sizeof line, maps))
        if (strstr(line, "SYSV"))
            printf("%s", strchr(line, '/'));
    fclose(maps);
    shmdt((void *)a);
    shmctl(id, IPC_RMID, 0);
    say("listed", count_listed("/proc/sysvipc/shm", id, 3 * PAGE + 1, -1) == 1);
}

int main(int argc, char **argv)
{
    if (argc > 2) {
        printf("another program: attached %ld\n", attached(atoi(argv[2])));
        return 0;
    }
    key = 0x51000000 + getpid();
    getting();
    attaching();
    unmapping();
    changing();
    forking();
    listing();
    return 0;
}
