/* Causes exceptions on purpose, checks what the handlers are told, and checks that the program goes on. */
#define _GNU_SOURCE
#include <float.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "check.h"

static volatile int code, steps;
static sigjmp_buf back;

static void handle(int signal, void (*handler)(int, siginfo_t *, void *))
{
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
    sigaction(signal, &action, NULL);
}

static void note(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)context;
    code = info->si_code;
}

static void escape(int signal, siginfo_t *info, void *context)
{
    note(signal, info, context);
    siglongjmp(back, 1);
}

static void step(int signal, siginfo_t *info, void *context)
{
    note(signal, info, context);
    if (++steps == 10000) {
        printf("stepping: for ever\n");
        exit(1);
    }
}

/* Returns the exceptions that the x87 unit reports for `a` divided by `b` while those in `masked` are off, or
 * 0. */
static int divided(unsigned short masked, long double a, long double b)
{
    unsigned short control = 0x340 | masked;
    code = 0;
    if (sigsetjmp(back, 1) == 0)
        __asm__ volatile("fninit; fldcw %0; fldt %1; fldt %2; fdivrp; fwait; fninit" ::"m"(control), "m"(a), "m"(b));
    return code;
}

static void floating_point(void)
{
    handle(SIGFPE, escape);
    check("x87, masked", divided(0x3f, 1, 0) == 0);
    check("x87, invalid", divided(0x3e, 0, 0) == FPE_FLTINV);
    check("x87, by zero", divided(0x3b, 1, 0) == FPE_FLTDIV);
    check("x87, overflow", divided(0x37, LDBL_MAX, 0.5L) == FPE_FLTOVF);
    check("x87, underflow", divided(0x2f, LDBL_MIN, LDBL_MAX) == FPE_FLTUND);
    check("x87, inexact", divided(0x1f, 1, 3) == FPE_FLTRES);
}

static int by_zero(void)
{
    code = 0;
    if (sigsetjmp(back, 1) == 0)
        __asm__ volatile("xor %%ecx, %%ecx; div %%ecx" ::: "eax", "ecx", "edx", "cc");
    return code;
}

/* The trap flag is set during a system call. The return from the kernel must let one instruction run. */
static void stepping(void)
{
    long result = SYS_getpid;
    handle(SIGTRAP, step);
    __asm__ volatile("sub $128, %%rsp; pushf; orl $0x100, (%%rsp); popf\n"
                     "syscall; nop\n"
                     "pushf; andl $~0x100, (%%rsp); popf; add $128, %%rsp"
                     : "+a"(result)::"rcx", "r11", "memory", "cc");
    check("stepping", result == getpid() && steps > 2 && code == TRAP_TRACE);
}

static void breakpoint(void)
{
    handle(SIGTRAP, note);
    __asm__ volatile("int3");
    check("breakpoint", code == SI_KERNEL);
}

/* There is no local descriptor table, wherever its register pointed at first. */
static void segments(void)
{
    int readable = 0;
    for (unsigned selector = 7; selector < 0x10000; selector += 0x1008)
        __asm__ volatile("verr %w1; jnz 1f; movl $1, %0; 1:" : "+r"(readable) : "r"(selector) : "cc");
    check("no local segments", !readable);
}

int main(void)
{
    floating_point();
    check("by zero", by_zero() == FPE_INTDIV);
    stepping();
    breakpoint();
    segments();
    printf("faults: %s\n", failures ? "FAILED" : "done");
    return failures != 0;
}
