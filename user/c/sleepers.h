/* Threads that sleep until their process ends, and others. The calls are made here, because clone of musl
 * 1.2.5 and later refuses to make threads. */

#include <errno.h>
#include <sched.h>
#include <unistd.h>

static inline int sleeps(void *nothing)
{
    (void)nothing;
    for (;;)
        pause();
    return 0;
}

/* Starts one, and returns the result of clone. A sleeping thread makes calls only, so no stack is written,
 * and 64 do for all. */
static long start_sleeper(void)
{
    enum { CLONE_NUMBER = 56, PAUSE_NUMBER = 34 };
    static char stacks[64][4096];
    static long next;
    long flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM;
    char *stack = stacks[next++ % 64] + sizeof *stacks;
    long result;
    __asm__ volatile("syscall\n"
                     "test %%rax, %%rax\n"
                     "jnz 1f\n"
                     "0: mov %[pause], %%eax\n"
                     "syscall\n"
                     "jmp 0b\n"
                     "1:"
                     : "=a"(result)
                     : "a"((long)CLONE_NUMBER), "D"(flags), "S"(stack), [pause] "i"(PAUSE_NUMBER)
                     : "rcx", "rdx", "r8", "r10", "r11", "cc", "memory");
    if (result >= 0)
        return result;
    errno = -result;
    return -1;
}

/* Starts a thread that calls a function, which does not return, on a stack that ends here. Returns the
 * result of clone. */
static inline long start_thread(int (*function)(void *), char *stack)
{
    enum { CLONE_NUMBER = 56 };
    long flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM;
    long result;
    __asm__ volatile("syscall\n"
                     "test %%rax, %%rax\n"
                     "jnz 1f\n"
                     "xor %%ebp, %%ebp\n"
                     "xor %%edi, %%edi\n"
                     "call *%[function]\n"
                     "ud2\n"
                     "1:"
                     : "=a"(result)
                     : "a"((long)CLONE_NUMBER), "D"(flags), "S"(stack), [function] "b"(function)
                     : "rcx", "rdx", "r8", "r10", "r11", "cc", "memory");
    if (result >= 0)
        return result;
    errno = -result;
    return -1;
}
