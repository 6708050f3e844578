/* The vDSO: an ELF file in each program's memory with functions that read the clock without a system call.
 * They tell the same as the calls, on every CPU, after a fork and an exec. Prints what every Linux prints. */
#define _GNU_SOURCE
#include <elf.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

static char *image;
static int (*clock_function)(clockid_t, struct timespec *);
static int (*day_function)(struct timeval *, void *);
static time_t (*time_function)(time_t *);
static long (*cpu_function)(unsigned *, unsigned *, void *);
static int (*resolution_function)(clockid_t, struct timespec *);

/* The tables to which the dynamic section leads. */
static Elf64_Sym *symbols;
static uint16_t *versions;
static char *strings;
static uint32_t *hash, symbol_count;
static char *definitions;

static char *at(uint64_t address)
{
    return image + address;
}

static void read_dynamic(Elf64_Dyn *entry)
{
    for (; entry->d_tag != DT_NULL; entry++)
        switch (entry->d_tag) {
        case DT_SYMTAB: symbols = (void *)at(entry->d_un.d_ptr); break;
        case DT_STRTAB: strings = at(entry->d_un.d_ptr); break;
        case DT_VERSYM: versions = (void *)at(entry->d_un.d_ptr); break;
        case DT_VERDEF: definitions = at(entry->d_un.d_ptr); break;
        case DT_HASH:
            hash = (void *)at(entry->d_un.d_ptr);
            symbol_count = hash[1];
            break;
        }
}

static uint32_t hash_of(const char *name)
{
    uint32_t value = 0, high;
    for (; *name; name++) {
        value = (value << 4) + (unsigned char)*name;
        if ((high = value & 0xf0000000))
            value ^= high >> 24;
        value &= ~high;
    }
    return value;
}

/* Returns whether a symbol has the version that programs ask for. */
static int has_version(uint32_t symbol)
{
    Elf64_Verdef *definition = (void *)definitions;
    while (definition->vd_ndx != (versions[symbol] & 0x7fff)) {
        if (definition->vd_next == 0)
            return 0;
        definition = (void *)((char *)definition + definition->vd_next);
    }
    Elf64_Verdaux *name = (void *)((char *)definition + definition->vd_aux);
    return definition->vd_hash == hash_of("LINUX_2.6") && !strcmp(strings + name->vda_name, "LINUX_2.6");
}

/* Finds a function by the hash table, if there is one, or else by looking at all symbols. */
static void *function(const char *name)
{
    uint32_t symbol = hash ? hash[2 + hash_of(name) % hash[0]] : 0;
    for (; symbol != 0; symbol = hash[2 + hash[0] + symbol])
        if (!strcmp(strings + symbols[symbol].st_name, name) && has_version(symbol))
            return ELF64_ST_TYPE(symbols[symbol].st_info) == STT_FUNC ? at(symbols[symbol].st_value) : NULL;
    return NULL;
}

static void find_functions(void)
{
    image = (char *)getauxval(AT_SYSINFO_EHDR);
    check("an image", image != NULL && !memcmp(image, ELFMAG, SELFMAG));
    Elf64_Ehdr *head = (void *)image;
    Elf64_Phdr *part = (void *)at(head->e_phoff);
    int loaded = 0;
    for (int i = 0; i < head->e_phnum; i++) {
        if (part[i].p_type == PT_LOAD)
            loaded += part[i].p_vaddr == 0 && part[i].p_offset == 0 && part[i].p_flags == (PF_R | PF_X);
        if (part[i].p_type == PT_DYNAMIC)
            read_dynamic((void *)at(part[i].p_vaddr));
    }
    check("one part", loaded == 1);
    clock_function = function("__vdso_clock_gettime");
    day_function = function("__vdso_gettimeofday");
    time_function = function("__vdso_time");
    cpu_function = function("__vdso_getcpu");
    resolution_function = function("__vdso_clock_getres");
    check("clock_gettime", clock_function != NULL);
    check("gettimeofday", day_function != NULL);
    check("time", time_function != NULL);
    check("getcpu", cpu_function != NULL);
    check("clock_getres", resolution_function != NULL);
    check("no other", function("__vdso_other") == NULL);
}

#define SECOND 1000000000LL

static long long ns(struct timespec time)
{
    return time.tv_sec * SECOND + time.tv_nsec;
}

static long long by_call(clockid_t clock)
{
    struct timespec time = {-1, 0};
    syscall(SYS_clock_gettime, clock, &time);
    return ns(time);
}

static long long by_function(clockid_t clock)
{
    struct timespec time = {-1, 0};
    return clock_function(clock, &time) == 0 && time.tv_nsec < SECOND ? ns(time) : -1;
}

/* The call and the function take turns, and time goes on. */
static void takes_turns(const char *name, clockid_t clock)
{
    long long last = by_call(clock);
    int good = last > 0;
    for (int i = 0; good && i < 20000; i++) {
        long long now = i % 2 ? by_call(clock) : by_function(clock);
        good = now >= last;
        last = now;
    }
    check(name, good);
}

static void clocks(void)
{
    takes_turns("realtime", CLOCK_REALTIME);
    takes_turns("monotonic", CLOCK_MONOTONIC);
    takes_turns("raw", CLOCK_MONOTONIC_RAW);
    takes_turns("coarse realtime", CLOCK_REALTIME_COARSE);
    takes_turns("coarse monotonic", CLOCK_MONOTONIC_COARSE);
    takes_turns("since boot", CLOCK_BOOTTIME);
    takes_turns("atomic time", CLOCK_TAI);
    takes_turns("process", CLOCK_PROCESS_CPUTIME_ID);
    takes_turns("thread", CLOCK_THREAD_CPUTIME_ID);
    struct timespec time;
    int bad[] = {12, 31, 32, 33, 12345, 0x7fffffff, -1};
    int refused = 0;
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++)
        refused += clock_function(bad[i], &time) == -EINVAL;
    check("no such clocks", refused == sizeof bad / sizeof *bad);
}

static void days(void)
{
    struct timeval day;
    struct timezone { int west, summer; } zone = {7, 7};
    long long before = by_call(CLOCK_REALTIME) / 1000;
    check("a day", day_function(&day, NULL) == 0);
    long long now = day.tv_sec * 1000000LL + day.tv_usec;
    check("microseconds", now >= before && now <= by_call(CLOCK_REALTIME) / 1000 && day.tv_usec < 1000000);
    check("a zone", day_function(NULL, &zone) == 0 && zone.west == 0 && zone.summer == 0);
    check("nothing", day_function(NULL, NULL) == 0);
    /* Linux takes the second of the last tick, which may be before the microseconds. */
    long long early = by_call(CLOCK_REALTIME_COARSE) / SECOND;
    time_t stored = 0, second = time_function(&stored);
    long long late = by_call(CLOCK_REALTIME_COARSE) / SECOND;
    check("seconds", second == stored && second >= early && second <= late && time_function(NULL) >= second);
}

static void resolutions(void)
{
    clockid_t all[] = {CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_BOOTTIME, CLOCK_TAI, CLOCK_PROCESS_CPUTIME_ID};
    int same = 0;
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++) {
        struct timespec function = {7, 7}, call = {8, 8};
        same += resolution_function(all[i], &function) == 0 && syscall(SYS_clock_getres, all[i], &call) == 0 &&
                ns(function) == ns(call);
    }
    check("resolutions", same == sizeof all / sizeof *all);
    check("no resolution is stored", resolution_function(CLOCK_MONOTONIC, NULL) == 0);
    check("no such resolution", resolution_function(12345, NULL) == -EINVAL);
}

static void go_to(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    sched_setaffinity(0, sizeof set, &set);
}

static void cpus(void)
{
    cpu_set_t all;
    sched_getaffinity(0, sizeof all, &all);
    int good = 1;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &all))
            continue;
        unsigned here = 12345, node = 12345;
        go_to(cpu);
        good &= cpu_function(&here, &node, NULL) == 0 && (int)here == cpu && node == 0;
    }
    sched_setaffinity(0, sizeof all, &all);
    check("each CPU", good);
    check("no CPU is stored", cpu_function(NULL, NULL, NULL) == 0);
}

static _Atomic long long latest;
static atomic_int behind;

/* Reads the clock, and moves from CPU to CPU. No reading is earlier than one that was finished before it. */
static void *wander(void *number)
{
    int count = sysconf(_SC_NPROCESSORS_ONLN);
    for (int i = 0; i < 20000; i++) {
        if (i % 500 == 0)
            go_to((i / 500 + (int)(long)number) % count);
        long long before = atomic_load(&latest), now = by_function(CLOCK_MONOTONIC);
        if (now < before)
            atomic_store(&behind, 1);
        while (before < now && !atomic_compare_exchange_weak(&latest, &before, now))
            ;
    }
    return NULL;
}

static void threads_that_move(void)
{
    pthread_t threads[4];
    for (long i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, wander, (void *)i);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    check("threads that move", atomic_load(&latest) > 0 && !atomic_load(&behind));
}

/* The length of the mapping that was found last. Linux changes all of it or nothing. */
static size_t length;

/* Returns the rights of the mapping with this name that begins at `start_at`. */
static const char *rights(const char *name, char *start_at)
{
    static char found[5];
    char line[256];
    FILE *maps = fopen("/proc/self/maps", "r");
    strcpy(found, "none");
    while (maps && fgets(line, sizeof line, maps)) {
        unsigned long start, end;
        char right[5];
        if (sscanf(line, "%lx-%lx %4s", &start, &end, right) != 3 || !strstr(line, name))
            continue;
        if (start == (uintptr_t)start_at) {
            strcpy(found, right);
            length = end - start;
        }
    }
    if (maps)
        fclose(maps);
    return found;
}

static int succeeds(int (*part)(void))
{
    int status;
    pid_t child = fork();
    if (child == 0)
        _exit(part());
    return waitpid(child, &status, 0) == child && status == 0;
}

static int works(void)
{
    long long before = by_call(CLOCK_MONOTONIC), now = by_function(CLOCK_MONOTONIC);
    return now < before || by_call(CLOCK_MONOTONIC) < now;
}

/* Newer kernels of Linux may seal the pages, and then refuse all changes. */
static int is_sealed(int failed)
{
    return failed && errno == EPERM;
}

/* The bytes behind the ELF file's magic number mean nothing. */
static int writes(void)
{
    int failed = mprotect(image, length, PROT_READ | PROT_WRITE);
    if (failed)
        return !is_sealed(failed);
    image[EI_NIDENT - 1] = 42;
    return mprotect(image, length, PROT_READ | PROT_EXEC) || image[EI_NIDENT - 1] != 42 || works();
}

static int moves(void)
{
    char *room = mmap(NULL, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *moved = mremap(image, length, length, MREMAP_MAYMOVE | MREMAP_FIXED, room);
    if (moved == MAP_FAILED)
        return !is_sealed(1);
    /* Memory that is mapped where it was has no name, and it keeps its own. */
    mmap(image, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    return moved != room || memcmp(moved, ELFMAG, SELFMAG) || by_call(CLOCK_MONOTONIC) <= 0 ||
           strcmp(rights("[vdso]", moved), "r-xp") || strcmp(rights("[vdso]", image), "none");
}

static int grows(void)
{
    return mremap(image, length, length + 4096, MREMAP_MAYMOVE) != MAP_FAILED || (errno != EFAULT && !is_sealed(1));
}

static int discards(void)
{
    int failed = madvise(image, length, MADV_DONTNEED);
    return (failed && !is_sealed(failed)) || memcmp(image, ELFMAG, SELFMAG) || works();
}

/* A page that was written is a copy, which goes. */
static int discards_a_copy(void)
{
    if (mprotect(image, length, PROT_READ | PROT_WRITE))
        return !is_sealed(1);
    image[EI_NIDENT - 1] = 42;
    return madvise(image, length, MADV_DONTNEED) || mprotect(image, length, PROT_READ | PROT_EXEC) ||
           image[EI_NIDENT - 1] != 0 || works();
}

/* Linux may accept the advice, and does nothing then. */
static int wipes(void)
{
    madvise(image, length, MADV_WIPEONFORK);
    return works() || !succeeds(works);
}

static int unmaps(void)
{
    int failed = munmap(image, length);
    return (failed && !is_sealed(failed)) || by_call(CLOCK_MONOTONIC) <= 0;
}

static void memory(void)
{
    printf("code: %s\n", rights("[vdso]", image));
    check("a child", succeeds(works));
    check("a child that writes", succeeds(writes));
    check("its parent's is as it was", image[EI_NIDENT - 1] == 0 && works() == 0);
    check("a child that discards it", succeeds(discards));
    check("a child that writes and discards it", succeeds(discards_a_copy));
    check("a child whose child does not get it", succeeds(wipes));
    check("a child that lengthens it", succeeds(grows));
    check("a child that moves it", succeeds(moves));
    check("a child that unmaps it", succeeds(unmaps));
    fflush(stdout);
    execl("/proc/self/exe", "vdso", "again", NULL);
    check("exec", 0);
}

int main(int count, char **words)
{
    (void)words;
    find_functions();
    if (count > 1) {
        check("works after exec", works() == 0);
        printf("vdso: %s\n", failures ? "FAILED" : "done");
        return failures != 0;
    }
    clocks();
    days();
    resolutions();
    cpus();
    threads_that_move();
    memory();
    return 1;
}
