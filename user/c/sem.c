/* SysV semaphores: operations that happen all at once or wait, with times and signals, undo at exit, removal,
 * the values and counts. Prints what every Linux prints. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/sem.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ipc.h"

#ifndef SEM_STAT_ANY
#define SEM_STAT_ANY 20
#endif

union argument {
    int value;
    struct semid_ds *set;
    unsigned short *values;
    struct seminfo *info;
};

static key_t key;

static int operate(int id, int number, int change, int flags)
{
    struct sembuf one = { number, change, flags };
    return semop(id, &one, 1);
}

static int value(int id, int number)
{
    return semctl(id, number, GETVAL);
}

static void set_to(int id, int number, int value)
{
    semctl(id, number, SETVAL, (union argument){ .value = value });
}

/* Waits until a number of tasks wait for a semaphore. */
static void await_count(int id, int number, int command, int count)
{
    while (semctl(id, number, command) != count)
        sched_yield();
}

static void getting(void)
{
    tell("no such key", semget(key, 1, 0));
    tell("none", semget(key, 0, IPC_CREAT | 0600));
    tell("less than none", semget(key, -1, IPC_CREAT | 0600));
    tell("too many", semget(key, 32001, IPC_CREAT | 0600));
    int id = semget(key, 3, IPC_CREAT | 0640);
    say("made", id >= 0);
    say("the same", semget(key, 3, 0) == id && semget(key, 0, IPC_CREAT) == id);
    tell("more", semget(key, 4, 0));
    tell("exclusive", semget(key, 3, IPC_CREAT | IPC_EXCL));
    struct semid_ds now;
    tell("stat", semctl(id, 0, IPC_STAT, (union argument){ .set = &now }));
    printf("key %d, mode %o, %lu, times %d %d\n", now.sem_perm.__key == key, now.sem_perm.mode, (long)now.sem_nsems,
           now.sem_otime != 0, now.sem_ctime != 0);
    now.sem_perm.mode = 01606;
    tell("set", semctl(id, 0, IPC_SET, (union argument){ .set = &now }));
    semctl(id, 0, IPC_STAT, (union argument){ .set = &now });
    printf("mode %o\n", now.sem_perm.mode);
    unsigned short all[3] = { 5, 32767, 0 };
    tell("set all", semctl(id, 0, SETALL, (union argument){ .values = all }));
    memset(all, 9, sizeof all);
    tell("get all", semctl(id, 0, GETALL, (union argument){ .values = all }));
    printf("%d %d %d\n", all[0], all[1], all[2]);
    say("by this process", semctl(id, 1, GETPID) == getpid());
    all[1] = 32768;
    tell("set one too high", semctl(id, 0, SETALL, (union argument){ .values = all }));
    tell("set too high", semctl(id, 0, SETVAL, (union argument){ .value = 32768 }));
    tell("set below 0", semctl(id, 0, SETVAL, (union argument){ .value = -1 }));
    tell("set one that is not there", semctl(id, 3, SETVAL, (union argument){ .value = 1 }));
    tell("get one that is not there", semctl(id, -1, GETVAL));
    tell("a bad address", syscall(SYS_semctl, id, 0, SETALL, 8));
    tell("a bad address", syscall(SYS_semctl, id, 0, GETALL, 8));
    tell("a bad address", syscall(SYS_semctl, id, 0, IPC_STAT, 8));
    tell("a bad command", semctl(id, 0, 99));
    tell("a bad set", semctl(-1, 0, GETVAL));
    tell("remove", semctl(id, 0, IPC_RMID));
    tell("remove again", semctl(id, 0, IPC_RMID));
    tell("gone", value(id, 0));
    tell("gone", operate(id, 0, 1, 0));
}

static void operating(void)
{
    int id = semget(IPC_PRIVATE, 4, 0600);
    struct sembuf many[501] = { { 0 } };
    tell("no operation", semop(id, many, 0));
    tell("too many", semop(id, many, 501));
    tell("500", semop(id, many, 500));
    tell("a bad address", syscall(SYS_semop, id, 8, 1));
    tell("a bad set", semop(-1, many, 1));
    tell("a bad semaphore", operate(id, 4, 1, 0));
    tell("add", operate(id, 0, 3, 0));
    tell("take", operate(id, 0, -2, 0));
    tell("take more", operate(id, 0, -2, IPC_NOWAIT));
    tell("0 is not", operate(id, 0, 0, IPC_NOWAIT));
    tell("0 is", operate(id, 1, 0, IPC_NOWAIT));
    struct sembuf both[] = { { 1, 2, 0 }, { 0, -1, 0 }, { 0, -1, IPC_NOWAIT } };
    tell("all or none", semop(id, both, 3));
    printf("%d %d\n", value(id, 0), value(id, 1));
    struct sembuf same[] = { { 2, 1, 0 }, { 2, 1, 0 }, { 2, -2, 0 }, { 2, 0, 0 }, { 2, 4, 0 } };
    tell("one several times", semop(id, same, 5));
    printf("%d\n", value(id, 2));
    set_to(id, 3, 32767);
    tell("too high", operate(id, 3, 1, 0));
    struct timespec soon = { 0, 20 * 1000 * 1000 }, bad = { 0, 1000000000 };
    struct sembuf take = { 1, -1, 0 };
    tell("in time", semtimedop(id, &take, 1, &soon));
    tell("a bad time", semtimedop(id, &take, 1, &bad));
    tell("no time at all", semtimedop(id, &take, 1, &(struct timespec){ 0, 0 }));
    tell("a bad address", syscall(SYS_semtimedop, id, &take, 1, 8));
    printf("%d waiting\n", semctl(id, 1, GETNCNT));
    struct semid_ds now;
    semctl(id, 0, IPC_STAT, (union argument){ .set = &now });
    say("time of operation", now.sem_otime != 0);
    semctl(id, 0, IPC_RMID);
}

static void take_two(int id)
{
    tell("taken two", operate(id, 0, -2, 0));
    operate(id, 2, 1, 0);
}

static void take_one(int id)
{
    tell("taken one", operate(id, 0, -1, 0));
    operate(id, 2, 1, 0);
}

static void wait_zero(int id)
{
    tell("it is 0", operate(id, 1, 0, 0));
    operate(id, 2, 1, 0);
}

static void wait_both(int id)
{
    struct sembuf both[] = { { 0, -1, 0 }, { 1, -1, 0 } };
    tell("taken both", semop(id, both, 2));
    operate(id, 2, 1, 0);
}

static void waiting(void)
{
    int id = semget(IPC_PRIVATE, 3, 0600);
    pid_t two = start_child(take_two, id);
    await_count(id, 0, GETNCNT, 1);
    pid_t one = start_child(take_one, id);
    await_count(id, 0, GETNCNT, 2);
    puts("one more");
    fflush(stdout);
    operate(id, 0, 1, 0);
    operate(id, 2, -1, 0);
    finish(one);
    printf("%d waiting, value %d\n", semctl(id, 0, GETNCNT), value(id, 0));
    fflush(stdout);
    operate(id, 0, 2, 0);
    int taken = operate(id, 0, -1, IPC_NOWAIT);
    int error = errno;
    finish(two);
    errno = error;
    tell("those are taken", taken);
    operate(id, 2, -1, 0);
    set_to(id, 1, 2);
    pid_t zero = start_child(wait_zero, id);
    await_count(id, 1, GETZCNT, 1);
    operate(id, 1, -1, 0);
    printf("%d waiting\n", semctl(id, 1, GETZCNT));
    fflush(stdout);
    operate(id, 1, -1, 0);
    finish(zero);
    operate(id, 2, -1, 0);
    pid_t both = start_child(wait_both, id);
    await_count(id, 0, GETNCNT, 1);
    printf("the second %d\n", semctl(id, 1, GETNCNT));
    fflush(stdout);
    set_to(id, 0, 1);
    await_count(id, 1, GETNCNT, 1);
    printf("the first %d, value %d\n", semctl(id, 0, GETNCNT), value(id, 0));
    fflush(stdout);
    unsigned short all[] = { 1, 1, 0 };
    semctl(id, 0, SETALL, (union argument){ .values = all });
    finish(both);
    operate(id, 2, -1, 0);
    two = start_child(take_two, id);
    await_count(id, 0, GETNCNT, 1);
    semctl(id, 0, IPC_RMID);
    finish(two);
}

static void nothing(int signal)
{
    (void)signal;
}

static int interrupted;

static void be_interrupted(int id)
{
    struct sigaction action = { .sa_handler = nothing, .sa_flags = SA_RESTART };
    sigaction(SIGUSR1, &action, 0);
    tell("interrupted", operate(interrupted, 0, -1, 0));
    fflush(stdout);
    operate(interrupted, 1, 1, 0);
    tell("killed", operate(interrupted, 0, -1, 0));
    (void)id;
}

static void interrupting(void)
{
    interrupted = semget(IPC_PRIVATE, 2, 0600);
    pid_t pid = start_child(be_interrupted, interrupted);
    await_count(interrupted, 0, GETNCNT, 1);
    kill(pid, SIGUSR1);
    operate(interrupted, 1, -1, 0);
    await_count(interrupted, 0, GETNCNT, 1);
    kill(pid, SIGKILL);
    int status;
    waitpid(pid, &status, 0);
    printf("status %x, %d waiting\n", status, semctl(interrupted, 0, GETNCNT));
    semctl(interrupted, 0, IPC_RMID);
}

static void hold(int id)
{
    operate(id, 0, -2, SEM_UNDO);
    operate(id, 1, 5, SEM_UNDO);
    operate(id, 1, -1, 0);
    printf("child: %d %d\n", value(id, 0), value(id, 1));
}

static void *hold_one(void *id)
{
    operate(*(int *)id, 0, -1, SEM_UNDO);
    return 0;
}

static void with_threads(int id)
{
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        pthread_create(threads + i, 0, hold_one, &id);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], 0);
    printf("threads: %d\n", value(id, 0));
}

static void undo_what_is_set(int id)
{
    operate(id, 0, -2, SEM_UNDO);
    set_to(id, 0, 7);
    operate(id, 0, -1, SEM_UNDO);
}

static void undo_too_much(int id)
{
    tell("as much as there is", operate(id, 1, 32767, SEM_UNDO));
    set_to(id, 1, 0);
    tell("as much as there is", operate(id, 1, 32767, SEM_UNDO));
    operate(id, 1, -32767, 0);
    tell("as much again", operate(id, 1, 2, SEM_UNDO));
    printf("%d\n", value(id, 1));
}

static void run_another(int id)
{
    operate(id, 0, -1, SEM_UNDO);
    char number[20];
    snprintf(number, sizeof number, "%d", id);
    execl("/proc/self/exe", "sem", "value", number, (char *)0);
}

static void remove_it(int id)
{
    operate(id, 0, -1, SEM_UNDO);
    semctl(id, 0, IPC_RMID);
}

static void undoing(void)
{
    int id = semget(IPC_PRIVATE, 2, 0600);
    set_to(id, 0, 4);
    finish(start_child(hold, id));
    printf("after: %d %d\n", value(id, 0), value(id, 1));
    finish(start_child(with_threads, id));
    printf("after: %d\n", value(id, 0));
    finish(start_child(undo_what_is_set, id));
    printf("after: %d\n", value(id, 0));
    set_to(id, 1, 0);
    finish(start_child(undo_too_much, id));
    printf("after: %d\n", value(id, 1));
    finish(start_child(run_another, id));
    printf("after: %d\n", value(id, 0));
    finish(start_child(remove_it, id));
    tell("gone", value(id, 0));
}

enum { PROCESSES = 4, TURNS = 300 };

static void take_turns(int id)
{
    for (int i = 0; i < TURNS; i++) {
        operate(id, 0, -1, SEM_UNDO);
        int now = value(id, 1);
        set_to(id, 1, now + 1);
        operate(id, 0, 1, SEM_UNDO);
    }
}

static void excluding(void)
{
    int id = semget(IPC_PRIVATE, 2, 0600);
    set_to(id, 0, 1);
    pid_t processes[PROCESSES];
    for (int i = 0; i < PROCESSES; i++)
        processes[i] = start_child(take_turns, id);
    for (int i = 0; i < PROCESSES; i++)
        finish(processes[i]);
    printf("turns %d\n", value(id, 1));
    semctl(id, 0, IPC_RMID);
}

enum { CHAIN = 10, STEP = 9 };

/* Each call of the chain takes from one semaphore and gives to the next. */
static void hand_on(int id, int link)
{
    struct sembuf both[2] = { { link * STEP, -1, 0 }, { (link + 1) * STEP, 1, 0 } };
    semop(id, both, 2);
}

static void hand_one_on(int id)
{
    static const int links[CHAIN] = { 9, 2, 8, 3, 7, 1, 6, 4, 5, 0 };
    pid_t pids[CHAIN];
    for (int i = 0; i < CHAIN; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            hand_on(id, links[i]);
            _exit(0);
        }
        await_count(id, links[i] * STEP, GETNCNT, 1);
    }
    set_to(id, 0, 1);
    for (int i = 0; i < CHAIN; i++)
        finish(pids[i]);
}

static void chaining(void)
{
    int id = semget(IPC_PRIVATE, CHAIN * STEP + 1, 0600);
    finish(start_child(hand_one_on, id));
    printf("handed on: %d %d\n", value(id, 0), value(id, CHAIN * STEP));
    semctl(id, 0, IPC_RMID);
}

static void refusing(void)
{
    struct semid_ds now;
    int id = semget(IPC_PRIVATE, 1, 0600);
    union semun { int value; struct semid_ds *set; } argument = { .value = 70000 };
    tell("too much for none", semctl(0x3fffffff, 0, SETVAL, argument));
    argument.set = &now;
    semctl(id, 0, IPC_STAT, argument);
    now.sem_perm.gid = -1;
    tell("no group", semctl(id, 0, IPC_SET, argument));
    /* Numbers that are larger than an index come once the indices begin again. */
    for (int i = 0; i < 200 && id < 1 << 15; i++) {
        semctl(id, 0, IPC_RMID);
        id = semget(IPC_PRIVATE, 1, 0600);
    }
    say("by its number", id >= 1 << 15 && semctl(id, 0, SEM_STAT, argument) == id);
    semctl(id, 0, IPC_RMID);
}

static int ask(int command, void *into)
{
    return semctl(0, 0, command, (union argument){ .info = into });
}

static void listing(void)
{
    int id = semget(IPC_PRIVATE, 77, 0600);
    say("listed", count_listed("/proc/sysvipc/sem", id, 77, -1));
    struct seminfo most, all;
    int highest = highest_index(ask, SEM_INFO, &all, IPC_INFO, &most);
    say("an index", highest >= 0);
    printf("%d %d %d %d %d\n", most.semmni, most.semmsl, most.semmns, most.semopm, most.semvmx);
    say("counted", all.semusz >= 1 && all.semaem >= 77);
    int found = 0;
    for (int at = 0; at <= highest; at++) {
        struct semid_ds now;
        if (semctl(at, 0, SEM_STAT, (union argument){ .set = &now }) == id)
            found += now.sem_nsems == 77;
        if (semctl(at, 0, SEM_STAT_ANY, (union argument){ .set = &now }) == id)
            found++;
    }
    printf("found %d\n", found);
    semctl(id, 0, IPC_RMID);
    say("listed", count_listed("/proc/sysvipc/sem", id, 77, -1));
}

int main(int argc, char **argv)
{
    if (argc > 2) {
        printf("another program: %d\n", value(atoi(argv[2]), 0));
        return 0;
    }
    key = 0x52000000 + getpid();
    getting();
    operating();
    waiting();
    interrupting();
    undoing();
    excluding();
    chaining();
    refusing();
    listing();
    return 0;
}
