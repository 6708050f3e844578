/* Prints random words, one to a line: two that lie on the stack of a new program, the address of a mapping,
 * and for each CPU one by getrandom and one from /dev/urandom, read there.
 *
 * randomness CPUS */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

static void require(int good, const char *what)
{
    if (!good) {
        perror(what);
        exit(1);
    }
}

static void words_of(int cpu, int urandom)
{
    unsigned long word;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    require(sched_setaffinity(0, sizeof set, &set) == 0, "sched_setaffinity");
    require(getrandom(&word, sizeof word, 0) == sizeof word, "getrandom");
    printf("%lx\n", word);
    require(read(urandom, &word, sizeof word) == sizeof word, "read");
    printf("%lx\n", word);
}

int main(int count, char **words)
{
    int cpus = count > 1 ? atoi(words[1]) : 1;
    int urandom = open("/dev/urandom", O_RDONLY);
    require(urandom >= 0, "/dev/urandom");
    const unsigned long *given = (const unsigned long *)getauxval(AT_RANDOM);
    printf("%lx\n%lx\n", given[0], given[1]);
    void *at = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    require(at != MAP_FAILED, "mmap");
    printf("%p\n", at);
    for (int cpu = 0; cpu < cpus; cpu++)
        words_of(cpu, urandom);
    return 0;
}
