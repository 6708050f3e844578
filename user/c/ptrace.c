/* Tracing of threads by another process: stops, registers, memory, signals, calls, events, single steps.
 *
 * ptrace: prints a line per part and exits with 0 if every part was as it must be. */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "traced.h"
#define PAGE 4096L
#define MARKED (SIGTRAP | 0x80)

enum { GET_SYSCALL_INFO = 0x420e, GETSIGMASK = 0x420a, SETSIGMASK = 0x420b, XSTATE = 0x202 };

static volatile long word = 0x1122334455667788;
static volatile int changed;

static void beginning(void)
{
    pid_t pid = traced(nothing);
    siginfo_t info;
    check("stops by its own signal", pid > 0);
    int got = waitpid(pid, NULL, __WALL | WNOHANG) == 0;
    check("a stop is reported once", got);
    check("its signal", ask(PTRACE_GETSIGINFO, pid, 0, (long)&info) == 0 && info.si_signo == SIGSTOP &&
                            info.si_code == SI_TKILL && info.si_pid == pid);
    check("no such signal", fails(ask(PTRACE_CONT, pid, 0, 65), EIO) && fails(ask(PTRACE_CONT, pid, 0, -1), EIO));
    check("an unknown request", fails(ask(0x5555, pid, 0, 0), EIO));
    check("goes on without it", finishes(pid));
    check("is no tracee any more", fails(ask(PTRACE_CONT, pid, 0, 0), ESRCH));

    pid = fork();
    if (pid == 0)
        _exit(ask(PTRACE_TRACEME, 0, 0, 0) == 0 && fails(ask(PTRACE_TRACEME, 0, 0, 0), EPERM) ? 5 : 6);
    check("is traced once", exits(pid, 5));
    pid = traced(nothing);
    siginfo_t news;
    memset(&news, 0, sizeof news);
    goes_on(pid, SIGSTOP);
    check("waitid: CLD_TRAPPED", waitid(P_PID, pid, &news, WSTOPPED | WEXITED | WNOWAIT) == 0 && news.si_code == CLD_TRAPPED &&
                                      news.si_status == SIGSTOP && news.si_pid == pid);
    check("and stays", stops(pid, SIGSTOP) && finishes(pid));
    pid = traced(nothing);
    check("a signal that ends it", goes_on(pid, SIGTERM) && dies(pid, SIGTERM));
    pid = traced(nothing);
    kill(pid, SIGKILL);
    check("SIGKILL ends one that is stopped", dies(pid, SIGKILL));
    pid = traced(nothing);
    check("PTRACE_KILL", ask(PTRACE_KILL, pid, 0, 0) == 0 && dies(pid, SIGKILL));
}

/* Stops with known registers. */
static void known(void)
{
    long result;
    asm volatile("mov $0x1234, %%r12; mov $0x5678, %%r13; mov $-9, %%r14; mov $1, %%r15; int3; mov %%r12, %0"
                 : "=r"(result)
                 :
                 : "r12", "r13", "r14", "r15", "memory");
    _exit(result == 0x4321 ? 7 : 8);
}

static void general(void)
{
    pid_t pid = traced(known);
    check("a breakpoint", goes_on(pid, 0) && stops(pid, SIGTRAP));
    Registers registers = registers_of(pid), other;
    check("registers", registers.r12 == 0x1234 && registers.r13 == 0x5678 && registers.r14 == -9UL && registers.r15 == 1);
    check("a 64-bit program", registers.cs == 0x33 && registers.ss == 0x2b && registers.orig_rax == -1UL);
    check("the byte before", (peek(pid, (void *)(registers.rip - 1)) & 0xff) == 0xcc);
    long value = 0;
    check("a register alone", ask(PTRACE_PEEKUSER, pid, offsetof(struct user, regs.r13), (long)&value) == 0 && value == 0x5678);
    check("bad places", fails(ask(PTRACE_PEEKUSER, pid, 3, (long)&value), EIO) &&
                            fails(ask(PTRACE_PEEKUSER, pid, 928, (long)&value), EIO) &&
                            fails(ask(PTRACE_POKEUSER, pid, 928, 0), EIO) &&
                            fails(ask(PTRACE_PEEKUSER, pid, 0, 8), EFAULT));
    check("debug registers", ask(PTRACE_PEEKUSER, pid, offsetof(struct user, u_debugreg[7]), (long)&value) == 0 &&
                                 ask(PTRACE_POKEUSER, pid, offsetof(struct user, u_debugreg[7]), 0) == 0);
    other = registers;
    other.cs = 0;
    check("no segment", fails(ask(PTRACE_SETREGS, pid, 0, (long)&other), EIO));
    other = registers;
    other.ss = 0x28;
    check("a kernel segment", fails(ask(PTRACE_SETREGS, pid, 0, (long)&other), EIO));
    check("a kernel base", fails(ask(PTRACE_POKEUSER, pid, offsetof(struct user, regs.fs_base), -4096), EIO) &&
                               fails(ask(PTRACE_POKEUSER, pid, offsetof(struct user, regs.gs_base), -4096), EIO));
    check("flags", ask(PTRACE_POKEUSER, pid, offsetof(struct user, regs.eflags), registers.eflags | 0x3000 | 1) == 0);
    other = registers_of(pid);
    check("not the privileged ones", (other.eflags & 0x3200) == 0x200 && other.eflags & 1);
    check("bad buffers", fails(ask(PTRACE_GETREGS, pid, 0, 8), EFAULT) && fails(ask(PTRACE_SETREGS, pid, 0, 8), EFAULT));
    registers.r12 = 0x4321;
    check("a changed one", set_registers(pid, &registers) && finishes(pid));

    pid = traced(known);
    goes_on(pid, 0);
    stops(pid, SIGTRAP);
    registers = registers_of(pid);
    registers.rip = 0x8000000000000000;
    check("an address that is none", set_registers(pid, &registers) && goes_on(pid, 0) && stops(pid, SIGSEGV));
    check("kills", goes_on(pid, SIGSEGV) && dies(pid, SIGSEGV));
}

static void sets(void)
{
    pid_t pid = traced(known);
    goes_on(pid, 0);
    stops(pid, SIGTRAP);
    Registers registers;
    struct iovec buffer = {&registers, sizeof registers};
    check("NT_PRSTATUS", ask(PTRACE_GETREGSET, pid, NT_PRSTATUS, (long)&buffer) == 0 && buffer.iov_len == 27 * 8 &&
                             registers.r13 == 0x5678);
    registers.r12 = 0x4321;
    buffer.iov_len = 4 * 8;
    check("a part of it", ask(PTRACE_SETREGSET, pid, NT_PRSTATUS, (long)&buffer) == 0 && registers_of(pid).r12 == 0x4321);
    buffer.iov_len = 12;
    check("bad sizes and kinds", fails(ask(PTRACE_GETREGSET, pid, NT_PRSTATUS, (long)&buffer), EINVAL) &&
                                     fails(ask(PTRACE_GETREGSET, pid, 0x7777, (long)&buffer), EINVAL) &&
                                     fails(ask(PTRACE_GETREGSET, pid, NT_PRSTATUS, 8), EFAULT));
    struct user_fpregs_struct fpu;
    check("floating point", ask(PTRACE_GETFPREGS, pid, 0, (long)&fpu) == 0 && fpu.mxcsr == 0x1f80);
    fpu.xmm_space[5 * 4] = 0x12345678;
    check("is set", ask(PTRACE_SETFPREGS, pid, 0, (long)&fpu) == 0);
    memset(&fpu, 0, sizeof fpu);
    buffer = (struct iovec){&fpu, sizeof fpu};
    check("NT_FPREGSET", ask(PTRACE_GETREGSET, pid, NT_FPREGSET, (long)&buffer) == 0 && buffer.iov_len == 512 &&
                             fpu.xmm_space[5 * 4] == 0x12345678);
    fpu.mxcsr = 0xffffffff;
    check("reserved bits", fails(ask(PTRACE_SETFPREGS, pid, 0, (long)&fpu), EINVAL));
    static _Alignas(64) uint64_t state[2048];
    buffer = (struct iovec){state, sizeof state};
    check("NT_X86_XSTATE", ask(PTRACE_GETREGSET, pid, XSTATE, (long)&buffer) == 0 && buffer.iov_len >= 576);
    check("the same is set", ask(PTRACE_SETREGSET, pid, XSTATE, (long)&buffer) == 0);
    state[512 / 8 + 3] = 1;
    check("a bad header", fails(ask(PTRACE_SETREGSET, pid, XSTATE, (long)&buffer), EINVAL));
    check("no change", finishes(pid));
}

static long *private_page, *file_page, *shared_page;
static int file;

static void look_at_pages(void)
{
    signal_self(SIGUSR1);
    int good = private_page[0] == 77 && file_page[0] == 78 && word == 79;
    asm volatile("" ::: "memory");
    _exit(good ? 7 : 8);
}

static void memory(void)
{
    char name[] = "/tmp/ptraceXXXXXX";
    file = mkstemp(name);
    unlink(name);
    long first = 5;
    if (write(file, &first, sizeof first) != sizeof first || ftruncate(file, PAGE) != 0)
        check("a file", 0);
    private_page = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    private_page[0] = 4;
    file_page = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, file, 0);
    shared_page = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, file, 0);
    long *hidden = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    hidden[1] = 6;
    mprotect(hidden, PAGE, PROT_NONE);
    pid_t pid = traced(look_at_pages);
    check("reads", peek(pid, &word) == 0x1122334455667788 && peek(pid, private_page) == 4 && peek(pid, file_page) == 5);
    check("what has no rights", peek(pid, hidden + 1) == 6);
    check("no page", fails(ask(PTRACE_PEEKDATA, pid, 8, (long)&first), EIO) && fails(ask(PTRACE_POKEDATA, pid, 8, 1), EIO) &&
                         fails(ask(PTRACE_PEEKDATA, pid, -8, (long)&first), EIO) &&
                         fails(ask(PTRACE_POKEDATA, pid, 0x7ffffffffff0, 1), EIO));
    check("writes", ask(PTRACE_POKEDATA, pid, (long)private_page, 77) == 0 && ask(PTRACE_POKETEXT, pid, (long)&word, 79) == 0);
    check("the parent's copy stays", private_page[0] == 4 && word == 0x1122334455667788);
    check("a page that is only read", ask(PTRACE_POKEDATA, pid, (long)file_page, 78) == 0 && peek(pid, file_page) == 78);
    long in_file = 0;
    check("the file stays", pread(file, &in_file, sizeof in_file, 0) == sizeof in_file && in_file == 5 && file_page[0] == 5);
    check("a shared one is refused", fails(ask(PTRACE_POKEDATA, pid, (long)shared_page, 1), EIO) && shared_page[0] == 5);
    char *edge = (char *)private_page + PAGE - 3;
    check("across pages", ask(PTRACE_POKEDATA, pid, (long)edge, 0x0102030405060708) == 0 && peek(pid, edge) == 0x0102030405060708);
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/mem", pid);
    int fd = open(path, O_RDWR);
    long value = 0;
    check("/proc/PID/mem", pread(fd, &value, sizeof value, (long)file_page) == sizeof value && value == 78);
    value = 77;
    check("is written", pwrite(fd, &value, sizeof value, (long)private_page) == sizeof value && peek(pid, private_page) == 77);
    check("where there is none", fails(pread(fd, &value, sizeof value, 16), EIO));
    close(fd);
    check("the child sees it", goes_on(pid, 0) && stops(pid, SIGUSR1) && finishes(pid));
    close(file);
}

static volatile sig_atomic_t heard, heard_code, heard_value;

static void hear(int signal, siginfo_t *info, void *context)
{
    (void)context;
    heard = signal;
    heard_code = info->si_code;
    heard_value = info->si_value.sival_int;
}

static void listen_to(int signal)
{
    struct sigaction action = {.sa_sigaction = hear, .sa_flags = SA_SIGINFO};
    sigaction(signal, &action, NULL);
}

static void get_signals(void)
{
    listen_to(SIGUSR1);
    listen_to(SIGUSR2);
    signal_self(SIGUSR1);
    if (heard != 0)
        _exit(1);
    signal_self(SIGUSR1);
    if (heard != SIGUSR2)
        _exit(2);
    signal_self(SIGUSR1);
    if (heard != SIGUSR1 || heard_code != SI_QUEUE || heard_value != 44)
        _exit(3);
    signal(SIGWINCH, SIG_IGN);
    signal_self(SIGWINCH);
    signal_self(SIGUSR1);
    sigset_t set;
    sigprocmask(SIG_BLOCK, NULL, &set);
    if (!sigismember(&set, SIGHUP) || sigismember(&set, SIGKILL))
        _exit(4);
}

static void signals(void)
{
    pid_t pid = traced(get_signals);
    check("a signal is shown", goes_on(pid, 0) && stops(pid, SIGUSR1));
    check("and suppressed", goes_on(pid, 0) && stops(pid, SIGUSR1));
    check("and replaced", goes_on(pid, SIGUSR2) && stops(pid, SIGUSR1));
    siginfo_t info;
    ask(PTRACE_GETSIGINFO, pid, 0, (long)&info);
    info.si_code = SI_QUEUE;
    info.si_value.sival_int = 44;
    check("and changed", ask(PTRACE_SETSIGINFO, pid, 0, (long)&info) == 0 && goes_on(pid, SIGUSR1));
    check("one that is ignored", stops(pid, SIGWINCH) && goes_on(pid, SIGWINCH) && stops(pid, SIGUSR1));
    uint64_t mask = 5;
    check("the mask", ask(GETSIGMASK, pid, 8, (long)&mask) == 0 && mask == 0);
    check("bad sizes", fails(ask(GETSIGMASK, pid, 4, (long)&mask), EINVAL) && fails(ask(SETSIGMASK, pid, 16, (long)&mask), EINVAL));
    mask = 1 << (SIGHUP - 1) | 1 << (SIGKILL - 1);
    check("is set", ask(SETSIGMASK, pid, 8, (long)&mask) == 0 && ask(GETSIGMASK, pid, 8, (long)&mask) == 0 && mask == 1);
    check("all were right", finishes(pid));
}

static void make_calls(void)
{
    long parent = syscall(SYS_getppid), other = syscall(SYS_getppid), none = syscall(SYS_getppid);
    _exit(parent == getppid() && other == getpid() && none == 55 ? 7 : 8);
}

struct info {
    uint8_t op, pad[3];
    uint32_t arch;
    uint64_t ip, sp, words[7];
};

static int to_call(pid_t pid)
{
    return ask(PTRACE_SYSCALL, pid, 0, 0) == 0 && stops(pid, MARKED);
}

/* Goes on to the beginning of call `number`. */
static int to_begin(pid_t pid, long number)
{
    for (;;) {
        if (!to_call(pid))
            return 0;
        if ((long)registers_of(pid).orig_rax == number)
            return 1;
        if (!to_call(pid))
            return 0;
    }
}

static void calls(void)
{
    pid_t pid = traced(make_calls);
    long message = -1;
    struct info info;
    memset(&info, 0xff, sizeof info);
    check("no call", ask(GET_SYSCALL_INFO, pid, sizeof info, (long)&info) == 24 && info.op == 0 && info.arch == 0xc000003e);
    check("options that are none", fails(ask(PTRACE_SETOPTIONS, pid, 0, 0x40000000), EINVAL));
    check("options", ask(PTRACE_SETOPTIONS, pid, 0, PTRACE_O_TRACESYSGOOD) == 0);
    check("the beginning", to_begin(pid, SYS_getppid));
    Registers registers = registers_of(pid);
    check("no result yet", registers.rax == -(unsigned long)ENOSYS);
    check("its message", ask(PTRACE_GETEVENTMSG, pid, 0, (long)&message) == 0 && message == 1);
    check("its number", ask(GET_SYSCALL_INFO, pid, sizeof info, (long)&info) == 80 && info.op == 1 &&
                            info.words[0] == SYS_getppid && info.ip == registers.rip && info.sp == registers.rsp);
    siginfo_t signal;
    check("a stop's signal", ask(PTRACE_GETSIGINFO, pid, 0, (long)&signal) == 0 && signal.si_signo == SIGTRAP &&
                                 signal.si_code == MARKED && signal.si_pid == pid);
    check("the end", to_call(pid));
    registers = registers_of(pid);
    check("its result", (pid_t)registers.rax == getpid() && registers.orig_rax == SYS_getppid);
    check("is told", ask(GET_SYSCALL_INFO, pid, sizeof info, (long)&info) == 33 && info.op == 2 &&
                         (pid_t)info.words[0] == getpid() && (uint8_t)info.words[1] == 0);
    check("another one", to_begin(pid, SYS_getppid));
    registers = registers_of(pid);
    registers.orig_rax = SYS_getpid;
    check("another number", set_registers(pid, &registers) && to_call(pid) && (pid_t)registers_of(pid).rax == pid);
    check("a third one", to_begin(pid, SYS_getppid));
    registers = registers_of(pid);
    registers.orig_rax = -1;
    check("no call at all", set_registers(pid, &registers) && to_call(pid) && (long)registers_of(pid).rax == -ENOSYS);
    registers = registers_of(pid);
    registers.rax = 55;
    check("another result", set_registers(pid, &registers) && finishes(pid));
}

static void run_another(void)
{
    char *words[] = {"/proc/self/exe", "exit", "7", NULL};
    execv(words[0], words);
}

static void programs(void)
{
    pid_t pid = traced(run_another);
    char path[64], byte;
    snprintf(path, sizeof path, "/proc/%d/mem", pid);
    int old = open(path, O_RDWR);
    check("memory before execve", pread(old, &byte, 1, registers_of(pid).rsp) == 1);
    check("SIGTRAP after execve", goes_on(pid, 0) && stops(pid, SIGTRAP));
    long stack = registers_of(pid).rsp;
    check("is not the other program's", pread(old, &byte, 1, stack) == 0 && pwrite(old, &byte, 1, stack) == 0);
    close(old);
    siginfo_t info;
    check("as sent", ask(PTRACE_GETSIGINFO, pid, 0, (long)&info) == 0 && info.si_code == SI_USER);
    check("the other program", finishes(pid));
    pid = traced(run_another);
    ask(PTRACE_SETOPTIONS, pid, 0, PTRACE_O_TRACEEXEC | PTRACE_O_TRACEEXIT | PTRACE_O_TRACESYSGOOD);
    check("PTRACE_EVENT_EXEC", goes_on(pid, 0) && stops(pid, EVENT(PTRACE_EVENT_EXEC)));
    long message = 0;
    check("the former number", ask(PTRACE_GETEVENTMSG, pid, 0, (long)&message) == 0 && message == pid);
    Registers registers = registers_of(pid);
    check("no result yet", registers.orig_rax == SYS_execve);
    check("the end of the call", to_call(pid) && registers_of(pid).rax == 0);
    check("PTRACE_EVENT_EXIT", goes_on(pid, 0) && stops(pid, EVENT(PTRACE_EVENT_EXIT)));
    check("the status", ask(PTRACE_GETEVENTMSG, pid, 0, (long)&message) == 0 && message == 7 << 8);
    check("memory is still there", peek(pid, (void *)registers_of(pid).rsp) != 1 && finishes(pid));
}

static void make_children(void)
{
    pid_t pid = fork();
    if (pid == 0)
        _exit(3);
    int good = exits(pid, 3);
    pid = vfork();
    if (pid == 0)
        _exit(4);
    good &= exits(pid, 4);
    pid = syscall(SYS_clone, SIGUSR1, 0, 0, 0, 0);
    if (pid == 0)
        _exit(5);
    listen_to(SIGUSR1);
    good &= exits(pid, 5);
    _exit(good ? 7 : 8);
}

/* Returns the child of an event, which stops too. */
static pid_t child_of(pid_t pid, int event)
{
    if (!stops(pid, EVENT(event)))
        return -1;
    long message = -1;
    ask(PTRACE_GETEVENTMSG, pid, 0, (long)&message);
    return must_be_child(stops(message, SIGSTOP) ? message : -1);
}

static void children(void)
{
    pid_t pid = traced(make_children);
    ask(PTRACE_SETOPTIONS, pid, 0,
        PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE | PTRACE_O_TRACEVFORKDONE);
    goes_on(pid, 0);
    pid_t child = child_of(pid, PTRACE_EVENT_FORK);
    check("a fork", child > 0);
    check("its child is traced", goes_on(child, 0) && exits(child, 3) && goes_on(pid, 0) && stops(pid, SIGCHLD));
    goes_on(pid, 0);
    child = child_of(pid, PTRACE_EVENT_VFORK);
    check("a vfork", child > 0);
    check("its parent waits", goes_on(pid, 0) && waitpid(pid, NULL, __WALL | WNOHANG) == 0);
    check("its child ends", goes_on(child, 0) && exits(child, 4));
    check("the parent goes on", stops(pid, EVENT(PTRACE_EVENT_VFORK_DONE)));
    check("and hears of it", goes_on(pid, 0) && stops(pid, SIGCHLD) && goes_on(pid, 0));
    child = child_of(pid, PTRACE_EVENT_CLONE);
    check("a clone", child > 0);
    goes_on(pid, 0);
    check("its child ends, too", goes_on(child, 0) && exits(child, 5));
    int status = status_of(pid);
    while (WIFSTOPPED(status)) {
        goes_on(pid, 0);
        status = status_of(pid);
    }
    check("all end", WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

asm(".globl steps, steps_end\n"
    "steps: mov $39, %eax\n"
    "syscall\n"
    "mov %rax, %rdx\n"
    "pushf\n"
    "popf\n"
    "nop\n"
    "steps_end: ret\n");
extern char steps[], steps_end[];

static void step_through(void)
{
    signal_self(SIGUSR1);
    asm volatile("call steps" ::: "rax", "rcx", "rdx", "r11", "memory", "cc");
    listen_to(SIGUSR2);
    asm volatile("int3");
    asm volatile("nop");
    _exit(heard == SIGUSR2 ? 7 : 8);
}

static int step(pid_t pid, int signal)
{
    return ask(PTRACE_SINGLESTEP, pid, 0, signal) == 0 && stops(pid, SIGTRAP);
}

static void single_steps(void)
{
    pid_t pid = traced(step_through);
    goes_on(pid, 0);
    stops(pid, SIGUSR1);
    long old = peek(pid, steps);
    check("a breakpoint is put", ask(PTRACE_POKETEXT, pid, (long)steps, (old & ~0xffL) | 0xcc) == 0);
    check("and hit", goes_on(pid, 0) && stops(pid, SIGTRAP));
    Registers registers = registers_of(pid);
    check("behind it", registers.rip == (uint64_t)steps + 1);
    check("the own text stays", *(long *)steps == old);
    ask(PTRACE_POKETEXT, pid, (long)steps, old);
    registers.rip = (uint64_t)steps;
    set_registers(pid, &registers);
    printf("steps:");
    for (int left = 10; left > 0 && registers.rip != (uint64_t)steps_end; left--) {
        int good = step(pid, 0);
        registers = registers_of(pid);
        siginfo_t info;
        ask(PTRACE_GETSIGINFO, pid, 0, (long)&info);
        printf(" %ld%s/%d/%d", (long)(registers.rip - (uint64_t)steps), good ? "" : "?", info.si_code,
               (int)(registers.eflags >> 8 & 1));
    }
    printf("\n");
    registers.eflags &= ~0x100UL;
    set_registers(pid, &registers);
    check("the call's result", (pid_t)registers.rdx == pid);
    check("no more steps", goes_on(pid, 0) && stops(pid, SIGTRAP));
    check("into a handler", step(pid, SIGUSR2) && registers_of(pid).rip == (uint64_t)hear);
    check("its first instruction", step(pid, 0) && registers_of(pid).rip > (uint64_t)hear);
    check("its end", finishes(pid));
}

/* A handler returns to where rax is what a tracer sees of a call that is restarted. */
static void keep_rax(void)
{
    long rax = -512;
    listen_to(SIGTRAP);
    asm volatile("int3" : "+a"(rax) : : "memory");
    _exit(heard == SIGTRAP && rax == -512 ? 7 : 8);
}

static void handler_returns(void)
{
    pid_t pid = traced(keep_rax);
    int status = 0, returned = 0, signal = 0;
    while (ask(PTRACE_SYSCALL, pid, 0, signal) == 0) {
        status = status_of(pid);
        if (!WIFSTOPPED(status))
            break;
        siginfo_t info = {0};
        ask(PTRACE_GETSIGINFO, pid, 0, (long)&info);
        /* Stops at calls have a code. */
        signal = WSTOPSIG(status) == SIGTRAP && info.si_code == SI_KERNEL ? SIGTRAP : 0;
        Registers registers = registers_of(pid);
        returned |= (long)registers.rax == -512 && registers.orig_rax == -1UL && signal == 0;
    }
    check("the end of rt_sigreturn is no call's", returned);
    check("what a handler returns to stays", WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

static void wait_long(void)
{
    pause();
}

static void sleep_long(void)
{
    struct timespec time = {1, 0}, begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    long result = syscall(SYS_nanosleep, &time, NULL);
    clock_gettime(CLOCK_MONOTONIC, &end);
    long slept = (end.tv_sec - begin.tv_sec) * 1000000000 + end.tv_nsec - begin.tv_nsec;
    _exit(result == 0 && slept >= 1000000000 ? 7 : 8);
}

static void restarts(void)
{
    pid_t pid = traced(wait_long);
    ask(PTRACE_SETOPTIONS, pid, 0, PTRACE_O_TRACESYSGOOD);
    check("to pause", to_begin(pid, SYS_pause));
    goes_on(pid, 0);
    kill(pid, SIGWINCH);
    check("a signal", stops(pid, SIGWINCH));
    Registers registers = registers_of(pid);
    check("ends it for a while", (long)registers.rax == -514 && registers.orig_rax == SYS_pause);
    check("it begins again", ask(PTRACE_SYSCALL, pid, 0, 0) == 0 && stops(pid, MARKED) && registers_of(pid).orig_rax == SYS_pause);
    kill(pid, SIGKILL);
    check("and ends", dies(pid, SIGKILL));
    int begins, is_signal;
    for (int tries = 0; tries < 20; tries++) {
        pid = traced(sleep_long);
        ask(PTRACE_SETOPTIONS, pid, 0, PTRACE_O_TRACESYSGOOD);
        begins = to_begin(pid, SYS_nanosleep);
        struct timespec begin, now;
        clock_gettime(CLOCK_MONOTONIC, &begin);
        goes_on(pid, 0);
        kill(pid, SIGWINCH);
        clock_gettime(CLOCK_MONOTONIC, &now);
        is_signal = stops(pid, SIGWINCH);
        if (is_signal)
            registers = registers_of(pid);
        /* This process may have come too late, when the second was over. */
        if ((now.tv_sec - begin.tv_sec) * 1000000000 + now.tv_nsec - begin.tv_nsec < 900000000)
            break;
        if (is_signal)
            kill(pid, SIGKILL), dies(pid, SIGKILL);
    }
    check("to a sleep", begins);
    check("a signal", is_signal);
    check("ends that, too", (long)registers.rax == -516 && registers.orig_rax == SYS_nanosleep);
    check("it goes on", to_call(pid) && registers_of(pid).orig_rax == SYS_restart_syscall);
    check("for the rest of its time", finishes(pid));
}

int main(int count, char **words)
{
    if (count == 3 && strcmp(words[1], "exit") == 0)
        return atoi(words[2]);
    beginning();
    general();
    sets();
    memory();
    signals();
    calls();
    programs();
    children();
    single_steps();
    handler_returns();
    restarts();
    return failures != 0;
}
