/* Signals: handlers run and return, masks hold them back, ignored ones do nothing, an alternate stack is
 * used, a handled SIGSEGV can be repaired, a signal reaches the thread it was sent to, or the one that waits
 * for it, ppoll waits under a mask of its own. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

static volatile sig_atomic_t caught, caught_by, code;
static volatile void *seen_at, *stack_at;

static void catch(int signal, siginfo_t *info, void *context)
{
    (void)context;
    int here;
    caught = signal, code = info->si_code, seen_at = info->si_addr;
    stack_at = &here;
    caught_by = syscall(SYS_gettid);
}

/* Makes the page writable, so that the faulting instruction succeeds when it is tried again. */
static void repair(int signal, siginfo_t *info, void *context)
{
    catch(signal, info, context);
    mprotect((void *)((unsigned long)info->si_addr & ~4095UL), 4096, PROT_READ | PROT_WRITE);
}

static void handle(int signal, void (*handler)(int, siginfo_t *, void *), int flags)
{
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | flags};
    sigaction(signal, &action, NULL);
}

static void masks(void)
{
    sigset_t set, old, pending;
    sigemptyset(&set), sigaddset(&set, SIGUSR1);
    caught = 0;
    sigprocmask(SIG_BLOCK, &set, &old);
    raise(SIGUSR1);
    sigpending(&pending);
    check("blocked", caught == 0 && sigismember(&pending, SIGUSR1));
    sigprocmask(SIG_SETMASK, &old, NULL);
    check("unblocked", caught == SIGUSR1);
}

static void alternate_stack(void)
{
    static char stack[1 << 16];
    stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
    check("sigaltstack", sigaltstack(&alternate, NULL) == 0);
    handle(SIGUSR2, catch, SA_ONSTACK);
    raise(SIGUSR2);
    check("on the alternate stack", (char *)stack_at >= stack && (char *)stack_at < stack + sizeof stack);
}

static void repaired_fault(void)
{
    volatile char *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    handle(SIGSEGV, repair, 0);
    page[123] = 'x';
    check("repaired fault", page[123] == 'x' && caught == SIGSEGV);
    check("fault address", seen_at == page + 123 && code == SEGV_ACCERR);
}

static void *wait_for_signal(void *tid)
{
    __atomic_store_n((int *)tid, syscall(SYS_gettid), __ATOMIC_RELEASE);
    while (caught == 0)
        usleep(1000);
    return NULL;
}

static void to_a_thread(void)
{
    pthread_t id;
    int tid = 0;
    caught = 0;
    pthread_create(&id, NULL, wait_for_signal, &tid);
    while (__atomic_load_n(&tid, __ATOMIC_ACQUIRE) == 0)
        usleep(1000);
    pthread_kill(id, SIGUSR1);
    pthread_join(id, NULL);
    check("to a thread", caught_by == tid);
}

static void taken_without_a_handler(void)
{
    sigset_t set, old;
    siginfo_t info = {0};
    sigemptyset(&set), sigaddset(&set, SIGUSR2);
    sigprocmask(SIG_BLOCK, &set, &old);
    kill(getpid(), SIGUSR2);
    check("taken", sigwaitinfo(&set, &info) == SIGUSR2 && info.si_signo == SIGUSR2);
    check("its sender", info.si_code == SI_USER && info.si_pid == getpid() && info.si_uid == getuid());
    sigprocmask(SIG_SETMASK, &old, NULL);
}

static sigset_t awaited;

static void *take_one(void *taken)
{
    sigwait(&awaited, taken);
    return NULL;
}

static void *stand_by(void *open)
{
    sigsuspend(open);
    return NULL;
}

/* Every thread blocks the signal, and one waits for it. The waiter gets it even if it comes before the wait,
 * and even if it would be lost otherwise because it is ignored by default. */
static void to_who_waits(int number)
{
    sigset_t old, open, blocked;
    pthread_t waiting, idle;
    int taken = 0;
    sigemptyset(&awaited), sigaddset(&awaited, number);
    sigfillset(&open), sigdelset(&open, SIGUSR1);
    blocked = awaited, sigaddset(&blocked, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &blocked, &old);
    pthread_create(&idle, NULL, stand_by, &open);
    pthread_create(&waiting, NULL, take_one, &taken);
    usleep(number % 2 * 20000);
    kill(getpid(), number);
    pthread_join(waiting, NULL);
    check("to who waits", taken == number);
    pthread_kill(idle, SIGUSR1);
    pthread_join(idle, NULL);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

static long poll_under(const void *mask, long size)
{
    struct timespec soon = {.tv_nsec = 1000000};
    return syscall(SYS_ppoll, NULL, 0, &soon, mask, size) == 0 ? 0 : errno;
}

static void polled_masks(void)
{
    sigset_t set, old, none, now;
    sigemptyset(&none), sigemptyset(&set), sigaddset(&set, SIGUSR1);
    check("ppoll, bad size", poll_under(&none, 4) == EINVAL);
    check("ppoll, bad mask", poll_under((void *)8, 8) == EFAULT);
    caught = 0;
    sigprocmask(SIG_BLOCK, &set, &old);
    raise(SIGUSR1);
    check("ppoll without a mask", poll_under(NULL, 4) == 0 && caught == 0);
    check("ppoll with one", poll_under(&none, 8) == EINTR && caught == SIGUSR1);
    check("ppoll to its end", poll_under(&none, 8) == 0);
    sigprocmask(SIG_SETMASK, &old, &now);
    check("the mask is back", sigismember(&now, SIGUSR1));
}

/* A signal that becomes ignored is not pending any more, for the process or a thread. */
static void ignored_while_pending(void)
{
    sigset_t set, old, now;
    sigemptyset(&set), sigaddset(&set, SIGHUP);
    sigprocmask(SIG_BLOCK, &set, &old);
    raise(SIGHUP), kill(getpid(), SIGHUP);
    sigpending(&now);
    check("pending", sigismember(&now, SIGHUP));
    signal(SIGHUP, SIG_IGN);
    sigpending(&now);
    check("pending no more", !sigismember(&now, SIGHUP));
    signal(SIGHUP, SIG_DFL);
    sigprocmask(SIG_SETMASK, &old, NULL);
    check("not delivered", 1);
}

int main(void)
{
    handle(SIGUSR1, catch, 0);
    raise(SIGUSR1);
    check("handler", caught == SIGUSR1 && code == SI_TKILL);
    masks();
    signal(SIGTERM, SIG_IGN);
    check("ignored", raise(SIGTERM) == 0);
    check("cannot be handled", signal(SIGKILL, SIG_IGN) == SIG_ERR && errno == EINVAL);
    ignored_while_pending();
    alternate_stack();
    repaired_fault();
    to_a_thread();
    taken_without_a_handler();
    for (int i = 0; i < 2; i++)
        to_who_waits(SIGUSR2), to_who_waits(SIGURG), to_who_waits(SIGCHLD), to_who_waits(SIGWINCH);
    polled_masks();
    printf("signals: %s\n", failures ? "FAILED" : "done");
    return failures != 0;
}
