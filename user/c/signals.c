/* Signals: handlers run and return, masks hold them back, ignored ones do nothing, an alternate stack is used,
 * a handled SIGSEGV can be repaired, a signal reaches the thread it was sent to. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static int failures;
static volatile sig_atomic_t caught, caught_by, code;
static volatile void *seen_at, *stack_at;

static void check(const char *part, int good)
{
    printf("%s: %s\n", part, good ? "ok" : "WRONG");
    failures += !good;
}

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

int main(void)
{
    handle(SIGUSR1, catch, 0);
    raise(SIGUSR1);
    check("handler", caught == SIGUSR1 && code == SI_TKILL);
    masks();
    signal(SIGTERM, SIG_IGN);
    check("ignored", raise(SIGTERM) == 0);
    check("cannot be handled", signal(SIGKILL, SIG_IGN) == SIG_ERR && errno == EINVAL);
    alternate_stack();
    repaired_fault();
    to_a_thread();
    printf("signals: %s\n", failures ? "FAILED" : "done");
    return failures != 0;
}
