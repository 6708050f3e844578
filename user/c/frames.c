/* Signal frames: on alternate stacks that are large enough or not, or disarm themselves. A program dies of
 * SIGSEGV if there is no room for its handler's frame, or if the frame is gone when the handler returns.
 *
 * frames: prints a line per part. frames overflow|entry|return: dies of SIGSEGV, after "about to die". frames
 * exhaust: dies for lack of memory for a frame, in a guest that has little. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "check.h"

#ifndef AT_MINSIGSTKSZ
#define AT_MINSIGSTKSZ 51
#endif
#ifndef SS_AUTODISARM
#define SS_AUTODISARM (1U << 31)
#endif

enum { ROOM = 1 << 16, FILL = 0x5a };
static struct {
    char below[ROOM], stack[ROOM];
} memory __attribute__((aligned(64)));
static volatile int depth, code;
static stack_t inside;
static int change;
static sigjmp_buf back;

static void handle(int signal, void (*handler)(int, siginfo_t *, void *), int flags)
{
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | flags};
    sigaction(signal, &action, NULL);
}

static int set_stack(size_t size, int flags)
{
    stack_t stack = {.ss_sp = memory.stack, .ss_size = size, .ss_flags = flags};
    return sigaltstack(&stack, NULL) == 0 ? 0 : errno;
}

/* Sends a signal to this thread, with as little stack as possible. */
static void send(int signal)
{
    syscall(SYS_tkill, syscall(SYS_gettid), signal);
}

static void look(int signal, siginfo_t *info, void *context)
{
    stack_t other = {.ss_flags = SS_DISABLE};
    (void)signal, (void)info, (void)context;
    depth++;
    sigaltstack(NULL, &inside);
    change = sigaltstack(&other, NULL) == 0 ? 0 : errno;
}

static void enter_again(int signal, siginfo_t *info, void *context)
{
    (void)context;
    if ((char *)info < memory.stack)
        _exit(1);
    depth++;
    send(signal);
}

static void escape(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)context;
    code = info->si_code;
    siglongjmp(back, 1);
}

static size_t least(void)
{
    size_t size = getauxval(AT_MINSIGSTKSZ);
    return size > 2048 ? size : 2048;
}

static int untouched_below(void)
{
    for (size_t i = 0; i < sizeof memory.below; i++)
        if (memory.below[i] != FILL)
            return 0;
    return 1;
}

static void stacks(void)
{
    stack_t now;
    handle(SIGUSR1, look, SA_ONSTACK);
    check("too small", set_stack(2047, 0) == ENOMEM);
    check("bad flags", set_stack(ROOM, 99) == EINVAL);
    check("just large enough", set_stack(least() + 1024, 0) == 0);
    send(SIGUSR1);
    check("handled", depth == 1 && untouched_below());
    check("in use", inside.ss_flags == SS_ONSTACK && inside.ss_sp == memory.stack && change == EPERM);
    sigaltstack(NULL, &now);
    check("no more", now.ss_flags == 0 && now.ss_sp == memory.stack);
}

static void disarmed(void)
{
    stack_t now;
    check("disarming", set_stack(ROOM, SS_AUTODISARM) == 0);
    send(SIGUSR1);
    check("disarmed", depth == 2 && inside.ss_flags == SS_DISABLE && inside.ss_size == 0 && change == 0);
    sigaltstack(NULL, &now);
    check("armed again", now.ss_flags == (int)SS_AUTODISARM && now.ss_sp == memory.stack && now.ss_size == ROOM);
    set_stack(ROOM, 0);
}

/* Makes a call with the stack pointer at an unmapped address. It does not return. */
static void call_without_stack(long number, long first, long second)
{
    __asm__ volatile("mov $0x1000, %%rsp\n syscall\n ud2" ::"a"(number), "D"(first), "S"(second) : "memory");
}

static void enter_without_stack(void)
{
    handle(SIGUSR1, look, 0);
    call_without_stack(SYS_tkill, syscall(SYS_gettid), SIGUSR1);
}

static void return_without_frame(void)
{
    call_without_stack(SYS_rt_sigreturn, 0, 0);
}

static void told(const char *part, void (*body)(void))
{
    handle(SIGSEGV, escape, SA_ONSTACK);
    code = 0;
    if (sigsetjmp(back, 1) == 0)
        body();
    check(part, code == SI_KERNEL);
}

/* Two frames do not fit, though there is memory below. */
static void overflow(void)
{
    handle(SIGUSR1, enter_again, SA_ONSTACK | SA_NODEFER);
    set_stack(least() / 2 * 3, 0);
    send(SIGUSR1);
}

/* Takes all memory by calls, which only fail when there is none, and then needs a page for a frame. */
static void exhaust(void)
{
    enum { PAGES = 1 << 18, MAX_REFUSED = 1000 };
    char *all = mmap(NULL, PAGES * 4096L, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    int zeroes = open("/dev/zero", O_RDONLY), refused = 0;
    handle(SIGUSR1, look, SA_ONSTACK);
    stack_t untouched = {.ss_sp = all + PAGES * 4096L - ROOM, .ss_size = ROOM};
    sigaltstack(&untouched, NULL);
    for (long i = 0; i < PAGES - ROOM / 4096 && refused < MAX_REFUSED; i++)
        refused += read(zeroes, all + i * 4096, 1) != 1;
    send(SIGUSR1);
}

int main(int argc, char **argv)
{
    memset(memory.below, FILL, sizeof memory.below);
    if (argc > 1) {
        printf("about to die: %s\n", argv[1]);
        fflush(stdout);
        if (strcmp(argv[1], "overflow") == 0)
            overflow();
        if (strcmp(argv[1], "entry") == 0)
            enter_without_stack();
        if (strcmp(argv[1], "return") == 0)
            return_without_frame();
        if (strcmp(argv[1], "exhaust") == 0)
            exhaust();
        printf("frames: FAILED, still alive\n");
        return 1;
    }
    stacks();
    disarmed();
    told("no room for a handler", enter_without_stack);
    told("no frame to return by", return_without_frame);
    printf("frames: %s\n", failures ? "FAILED" : "done");
    return failures != 0;
}
