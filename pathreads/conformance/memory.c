// Rules of memory: what mmap and its kin promise, whoever serves them.
#include "rule.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>

static void fresh_memory_is_zero(void) {
    long wrong = 0;
    for (int round = 0; round < 3; round++) {
        for (size_t pages = 1; pages <= 272; pages += pages < 70 ? 1 : 6) {
            unsigned char *at = map_pages(pages);
            for (size_t i = 0; i < pages * page; i += 512) wrong += at[i] != 0;
            for (size_t i = round; i < pages * page; i += 512 * (1 + pages % 3)) at[i] = 0xaa;
            NEED(munmap(at, pages * page) == 0);
        }
    }
    SAY("%ld\n", wrong);
}

static void memory_that_was_read_only_is_zero_too(void) {
    long sum = 0;
    for (int i = 0; i < 50; i++) {
        unsigned char *at = map_pages(20);
        for (size_t k = 0; k < 20; k += 1 + i % 4) sum += at[k * page];
        if (i % 3 == 0) memset(at + 5 * page, 1, 2 * page);
        NEED(munmap(at, 20 * page) == 0);
    }
    SAY("%ld\n", sum);
}

static void the_rest_of_a_mapping_stays(void) {
    for (int part = 0; part < 3; part++) {
        unsigned char *at = map_pages(9);
        for (int i = 0; i < 9; i++) at[i * page] = 10 + i;
        NEED(munmap(at + part * 3 * page, 3 * page) == 0);
        for (int i = 0; i < 9; i++) SAY("%d ", i / 3 == part ? is_readable(at + i * page) : at[i * page]);
        NEED(munmap(at, 9 * page) == 0);
        SAY("%d\n", is_readable(at));
    }
}

static void two_mappings_may_be_unmapped_as_one(void) {
    unsigned char *at[40];
    for (int i = 0; i < 40; i++) at[i] = map_pages(2);
    unsigned char *low = at[0], *high = at[0];
    for (int i = 0; i < 40; i++) {
        if (at[i] < low) low = at[i];
        if (at[i] > high) high = at[i];
    }
    for (int i = 0; i < 39; i++) {
        for (int k = 0; k < 40; k++) {
            if (at[i] && at[k] == at[i] + 2 * page) {
                NEED(munmap(at[i], 4 * page) == 0);
                NEED(!is_readable(at[i]) && !is_readable(at[k]));
                at[i] = at[k] = NULL;
            }
        }
    }
    for (int i = 0; i < 40; i++) {
        if (at[i]) at[i][page] = 1;
    }
    SAY("others stay\n");
}

static void protection_holds(void) {
    unsigned char *at = map_pages(8);
    at[0] = 7;
    NEED(mprotect(at, 4 * page, PROT_READ) == 0);
    SAY("%d %d %d ", at[0], faults(at), faults(at + 4 * page));
    NEED(mprotect(at, 8 * page, PROT_NONE) == 0);
    SAY("%d %d ", faults(at), is_readable(at));
    NEED(mprotect(at, 8 * page, PROT_READ | PROT_WRITE) == 0);
    SAY("%d %d\n", at[0], faults(at));
    NEED(munmap(at, 8 * page) == 0);
    at = map_pages(8);
    SAY("%d %d\n", at[0], faults(at));
}

static void fixed_mappings_replace(void) {
    unsigned char *at = map_pages(6);
    memset(at, 3, 6 * page);
    int file = open("/proc/self/exe", O_RDONLY);
    NEED(mmap(at + page, page, PROT_READ, MAP_PRIVATE | MAP_FIXED, file, 0) == at + page);
    NEED(mmap(at + 2 * page, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at + 2 * page);
    SAY("%d %.3s %d %d\n", at[0], at + page + 1, at[2 * page], at[3 * page]);
    NEED(munmap(at, 6 * page) == 0);
    SAY("%d\n", is_readable(at + page));
}

static void an_address_is_taken_as_a_hint(void) {
    unsigned char *at = map_pages(4);
    NEED(munmap(at, 4 * page) == 0);
    void *again = mmap(at, 4 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    SAY("%d\n", again == at);
}

static void what_was_unmapped_may_be_mapped_at_its_address(void) {
    unsigned char *at = map_pages(5);
    NEED(munmap(at, 5 * page) == 0);
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
    void *again = mmap(at, 5 * page, PROT_READ | PROT_WRITE, flags, -1, 0);
    SAY("%d\n", again == at);
    SAY_CALL(mmap(at, 5 * page, PROT_READ | PROT_WRITE, flags, -1, 0));
}

static void mremap_keeps_the_content(void) {
    for (size_t pages = 1; pages < 100; pages += 9) {
        unsigned char *at = map_pages(pages);
        for (size_t i = 0; i < pages; i++) at[i * page] = i;
        unsigned char *larger = mremap(at, pages * page, 3 * pages * page, MREMAP_MAYMOVE);
        NEED(larger != MAP_FAILED);
        long wrong = 0;
        for (size_t i = 0; i < 3 * pages; i++) wrong += larger[i * page] != (i < pages ? i : 0);
        unsigned char *smaller = mremap(larger, 3 * pages * page, page, 0);
        SAY("%ld %d %d ", wrong, smaller == larger, smaller[0]);
        NEED(munmap(smaller, page) == 0);
    }
    unsigned char *from = map_pages(4), *to = map_pages(4);
    memset(from, 1, 4 * page);
    memset(to, 2, 4 * page);
    NEED(mremap(from + page, 2 * page, 2 * page, MREMAP_MAYMOVE | MREMAP_FIXED, to + page) == to + page);
    SAY("%d %d %d %d %d\n", from[0], is_readable(from + page), to[0], to[page], to[3 * page]);
    SAY_CALL(mremap(from, 4 * page, 8 * page, 0));
}

static void advice_holds(void) {
    unsigned char *at = map_pages(8), present[8];
    memset(at, 5, 8 * page);
    NEED(madvise(at + page, 2 * page, MADV_DONTNEED) == 0);
    SAY("%d %d %d %d\n", at[0], at[page], at[2 * page], at[3 * page]);
    NEED(madvise(at, 8 * page, MADV_DONTFORK) == 0);
    NEED(munmap(at, 8 * page) == 0);
    SAY_CALL(madvise(at, page, MADV_DONTNEED));
    at = map_pages(8);
    at[0] = 9;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) _exit(at[0]);
    say_end("the reader", child);
    NEED(mincore(at, page, present) == 0);
    SAY("%d\n", present[0] & 1);
}

static void unmapped_memory_is_unknown_to_mincore(void) {
    unsigned char *at = map_pages(4), present[4];
    NEED(munmap(at, 4 * page) == 0);
    SAY_CALL(mincore(at, 4 * page, present));
    SAY_CALL(msync(at, page, MS_SYNC));
}

static void wrong_arguments_are_refused(void) {
    unsigned char *at = map_pages(2);
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    SAY_CALL(munmap(at + 1, page));
    SAY_CALL(munmap(at, 0));
    SAY_CALL(mmap(NULL, 0, PROT_READ | PROT_WRITE, flags, -1, 0));
    SAY_CALL(mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_ANONYMOUS, -1, 0));
    SAY_CALL(mmap(NULL, SIZE_MAX - page, PROT_READ | PROT_WRITE, flags, -1, 0));
    SAY_CALL(syscall(SYS_mmap, NULL, page, PROT_READ | PROT_WRITE, flags, -1, 1));
    SAY_CALL(munmap(at, 2 * page));
    SAY_CALL(munmap(at, 2 * page));
}

static void lengths_are_rounded_up(void) {
    unsigned char *at = mmap(NULL, 5000, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    at[8191] = 1;
    SAY("%d\n", munmap(at, 4097));
    at = mmap(NULL, 5000, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    SAY("%d\n", at[8191]);
}

static void a_child_has_a_copy(void) {
    unsigned char *at = map_pages(3), *other = map_pages(3);
    at[0] = 1;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        at[0]++;
        NEED(munmap(other, 3 * page) == 0);
        unsigned char *own = map_pages(3);
        NEED(own[0] == 0);
        own[0] = 50;
        _exit(at[0] + own[0]);
    }
    other[0] = 4;
    say_end("the child", child);
    SAY("%d %d\n", at[0], other[0]);
}

static volatile int stop;
static void *churn(void *unused) {
    unsigned seed = 1;
    while (!stop) {
        size_t pages = 1 + seed % 64;
        unsigned char *at = map_pages(pages);
        for (size_t i = 0; i < pages; i += 3) {
            NEED(at[i * page] == 0);
            at[i * page] = 1;
        }
        NEED(munmap(at, pages * page) == 0);
        seed = seed * 1103515245 + 12345;
        seed = (seed >> 8) | 1;
    }
    return unused;
}

static void children_of_busy_threads(void *(*run)(void *)) {
    pthread_t one = start(run, NULL), other = start(run, NULL);
    int good = 0;
    for (int i = 0; i < 40; i++) {
        pid_t child = fork();
        if (child == 0) {
            for (size_t pages = 1; pages < 65; pages++) {
                unsigned char *at = map_pages(pages);
                for (size_t k = 0; k < pages; k++) NEED(at[k * page] == 0);
                memset(at, 1, pages * page);
                NEED(munmap(at, pages * page) == 0);
            }
            _exit(0);
        }
        int status;
        waitpid(child, &status, 0);
        good += status == 0;
    }
    stop = 1;
    finish(one);
    finish(other);
    SAY("%d\n", good);
}

static void threads_that_map_may_fork(void) {
    children_of_busy_threads(churn);
}

static void a_vfork_child_uses_the_same_memory(void) {
    unsigned char *at = map_pages(2);
    fflush(stdout);
    pid_t child = vfork();
    if (child == 0) {
        at[0] = 6;
        munmap(at + page, page);
        _exit(0);
    }
    say_end("the child", child);
    SAY("%d %d\n", at[0], is_readable(at + page));
}

static void the_list_of_mappings_is_right(void) {
    unsigned char *at = map_pages(7);
    SAY("%d ", is_listed(at));
    NEED(munmap(at, 7 * page) == 0);
    SAY("%d\n", is_listed(at));
}

static void fixed_mappings_stay_beside_new_ones(void) {
    const uintptr_t step = 2 << 20;
    for (int i = 1; i < 4; i++) {
        unsigned char *at = (unsigned char *)((uintptr_t)map_pages(2 * i) / step * step + step * i);
        int listed = 0;
        for (int k = 0; k < 16; k++) listed |= is_listed(at + k * page);
        if (listed) continue;
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
        NEED(mmap(at, 16 * page, PROT_READ | PROT_WRITE, flags, -1, 0) == at);
        memset(at, 7, 16 * page);
        for (size_t pages = 1; pages < 65; pages++) memset(map_pages(pages), 1, pages * page);
        for (size_t k = 0; k < 16 * page; k++) NEED(at[k] == 7);
    }
    SAY("unchanged\n");
}

static void a_limit_counts_all_memory(void) {
    for (int kind = 0; kind < 2; kind++) {
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            for (int i = 0; i < 10; i++) munmap(map_pages(i + 1), (i + 1) * page);
            struct rlimit limit = {96 << 20, 96 << 20};
            NEED(setrlimit(kind ? RLIMIT_DATA : RLIMIT_AS, &limit) == 0);
            int count = 0;
            while (mmap(NULL, 16 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED) count++;
            _exit(count > 100 && count <= 1536 && errno == ENOMEM);
        }
        say_end("the limited", child);
    }
}

static void locked_memory_is_counted(void) {
    unsigned char *at = map_pages(4);
    SAY_CALL(mlock(at, 4 * page));
    SAY_CALL(munlock(at, 4 * page));
    SAY_CALL(munmap(at, 4 * page));
    SAY_CALL(mlock(at, 4 * page));
}

#define ALLOW(number) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static void a_filter_sees_the_programs_calls_only(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(SYS_mmap), ALLOW(SYS_munmap), ALLOW(SYS_getppid), ALLOW(SYS_write), ALLOW(SYS_exit_group), ALLOW(SYS_rt_sigreturn),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        unsigned char *before = map_pages(9);
        NEED(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
        if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) _exit(50);
        for (int i = 0; i < 2000; i++) {
            size_t pages = 1 + i % 64;
            memset(map_pages(pages), 1, page);
            getppid();
        }
        NEED(munmap(before, 9 * page) == 0);
        _exit(4);
    }
    say_end("the filtered", child);
}

static void shared_memory_is_shared(void) {
    unsigned char *at = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        at[0] = 12;
        _exit(0);
    }
    say_end("the child", child);
    SAY("%d\n", at[0]);
}

static long resident(void) {
    FILE *statm = fopen("/proc/self/statm", "r");
    long size, pages;
    NEED(fscanf(statm, "%ld %ld", &size, &pages) == 2);
    fclose(statm);
    return pages;
}

static void nothing_leaks(void) {
    long before = resident();
    for (int i = 0; i < 100000; i++) {
        size_t pages = 1 + i % 8;
        unsigned char *at = map_pages(pages);
        at[(pages - 1) * page] = 1;
        NEED(munmap(at, pages * page) == 0);
    }
    SAY("%d\n", resident() - before < 3000);
}

static void many_mappings_live_at_once(void) {
    static unsigned char *at[20000];
    for (int i = 0; i < 20000; i++) (at[i] = map_pages(1 + i % 3))[0] = i % 251;
    long wrong = 0;
    for (int i = 0; i < 20000; i++) wrong += at[i][0] != i % 251;
    for (int i = 0; i < 20000; i += 2) NEED(munmap(at[i], (1 + i % 3) * page) == 0);
    for (int i = 1; i < 20000; i += 2) wrong += at[i][0] != i % 251;
    SAY("%ld\n", wrong);
}

static void *pass_on[2];
static void *unmap_others(void *mine) {
    pthread_barrier_t *barrier = mine;
    int me = pthread_barrier_wait(barrier) == PTHREAD_BARRIER_SERIAL_THREAD;
    for (int i = 0; i < 300; i++) {
        unsigned char *at = map_pages(2);
        NEED(at[0] == 0 && at[page] == 0);
        at[0] = at[page] = 1;
        pass_on[me] = at;
        pthread_barrier_wait(barrier);
        NEED(munmap(pass_on[1 - me], 2 * page) == 0);
        pthread_barrier_wait(barrier);
    }
    return NULL;
}

static void any_thread_may_unmap(void) {
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, 2);
    pthread_t one = start(unmap_others, &barrier), other = start(unmap_others, &barrier);
    finish(one);
    finish(other);
    SAY("all unmapped\n");
}

static void map_in_handler(int signal) {
    unsigned char *at = map_pages(3);
    NEED(at[0] == 0 && at[2 * page] == 0);
    at[0] = at[2 * page] = signal;
    NEED(munmap(at, 3 * page) == 0);
}

static void a_handler_may_map(void) {
    struct itimerval often = {{0, 200}, {0, 200}}, never = {{0, 0}, {0, 0}};
    signal(SIGALRM, map_in_handler);
    NEED(setitimer(ITIMER_REAL, &often, NULL) == 0);
    for (int i = 0; i < 30000; i++) {
        unsigned char *at = map_pages(3);
        NEED(at[0] == 0 && at[2 * page] == 0);
        at[0] = at[2 * page] = 1;
        NEED(munmap(at, 3 * page) == 0);
    }
    NEED(setitimer(ITIMER_REAL, &never, NULL) == 0);
    SAY("done\n");
}

static void the_heap_grows_and_shrinks(void) {
    char *before = sbrk(0);
    NEED(sbrk(1 << 20) == before);
    memset(before, 1, 1 << 20);
    NEED(sbrk(-(1 << 20)) == before + (1 << 20));
    NEED(sbrk(4096) == before);
    SAY("%d %d\n", before[0], sbrk(0) == before + 4096);
}

static void code_may_be_made(void) {
    // mov $39, %eax; syscall; ret: getpid, by an instruction that nobody has seen before.
    static const unsigned char code[] = {0xb8, 39, 0, 0, 0, 0x0f, 0x05, 0xc3};
    unsigned char *at = map_pages(1);
    memcpy(at, code, sizeof code);
    NEED(mprotect(at, page, PROT_READ | PROT_EXEC) == 0);
    SAY("%d ", ((long (*)(void))at)() == getpid());
    NEED(munmap(at, page) == 0);
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    at = mmap(NULL, page, PROT_READ | PROT_WRITE | PROT_EXEC, flags, -1, 0);
    memcpy(at, code, sizeof code);
    SAY("%d\n", ((long (*)(void))at)() == getpid());
}

static void io_reads_and_writes_pool_memory(void) {
    unsigned char *at = map_pages(16), *to = map_pages(16);
    int file = open("/proc/self/exe", O_RDONLY), ends[2];
    NEED(pipe(ends) == 0);
    ssize_t length = pread(file, at, 16 * page, 0);
    NEED(length > 0 && write(ends[1], at, page) == (ssize_t)page && read(ends[0], to, page) == (ssize_t)page);
    SAY("%d %.3s\n", memcmp(at, to, page), to + 1);
}

// Random calls on regions of a thread, with a copy of what each page should hold.
enum { REGIONS = 40, MOST = 80, LARGE = 260 };
struct region {
    unsigned char *at;
    size_t pages;
    unsigned char holds[LARGE];
};

static void check_region(const struct region *region) {
    for (size_t i = 0; i < region->pages; i++) {
        const unsigned char *one = region->at + i * page;
        NEED(one[0] == region->holds[i] && one[page - 1] == region->holds[i]);
    }
}

static void write_pages(struct region *region, size_t from, size_t to, unsigned char value) {
    for (size_t i = from; i < to; i++) {
        region->at[i * page] = region->at[i * page + page - 1] = value;
        region->holds[i] = value;
    }
}

static void map_region(struct region *region, unsigned *seed) {
    unsigned kind = next_random(seed) % 16;
    region->pages = kind == 0 ? 64 + 16 * (next_random(seed) % 13) : 1 + next_random(seed) % (kind < 4 ? MOST : 8);
    region->at = map_pages(region->pages);
    memset(region->holds, 0, sizeof region->holds);
    check_region(region);
}

static void change_region(struct region *region, unsigned *seed) {
    size_t from = next_random(seed) % region->pages, to = from + 1 + next_random(seed) % (region->pages - from);
    unsigned char *at = region->at + from * page;
    size_t length = (to - from) * page;
    switch (next_random(seed) % 8) {
    case 0:
    case 1:
        write_pages(region, from, to, 1 + next_random(seed) % 255);
        break;
    case 2:
        NEED(madvise(at, length, MADV_DONTNEED) == 0);
        memset(region->holds + from, 0, to - from);
        break;
    case 3:
        NEED(mprotect(at, length, PROT_READ) == 0);
        check_region(region);
        NEED(mprotect(at, length, PROT_READ | PROT_WRITE) == 0);
        break;
    case 4:
        NEED(mmap(at, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at);
        memset(region->holds + from, 0, to - from);
        break;
    case 5: {
        size_t pages = 1 + next_random(seed) % (2 * MOST);
        unsigned char *moved = mremap(region->at, region->pages * page, pages * page, MREMAP_MAYMOVE);
        if (moved == MAP_FAILED) {
            // Linux does not move what it keeps as several mappings, as it does here after a fork.
            NEED(errno == EFAULT);
            break;
        }
        for (size_t i = region->pages; i < pages; i++) region->holds[i] = 0;
        region->at = moved;
        region->pages = pages;
        break;
    }
    case 6:
        // Keeps the part before, if there is one, or else the part behind.
        NEED(munmap(at, (region->pages - from) * page) == 0);
        region->pages = from;
        break;
    default:
        if (to < region->pages) {
            NEED(munmap(region->at, to * page) == 0);
            region->at += to * page;
            region->pages -= to;
            memmove(region->holds, region->holds + to, region->pages);
        }
    }
}

static void *call_at_random(void *number) {
    struct region *regions = calloc(REGIONS, sizeof *regions);
    unsigned seed = 77 * (unsigned)(uintptr_t)number;
    for (int round = 0; round < 12000; round++) {
        struct region *region = &regions[next_random(&seed) % REGIONS];
        if (region->pages == 0) {
            map_region(region, &seed);
        } else if (next_random(&seed) % 3) {
            check_region(region);
            NEED(munmap(region->at, region->pages * page) == 0);
            region->pages = 0;
        } else {
            change_region(region, &seed);
            check_region(region);
        }
    }
    for (int i = 0; i < REGIONS; i++) check_region(&regions[i]);
    free(regions);
    return NULL;
}

static void memory_survives_random_calls(void) {
    call_at_random((void *)1);
    SAY("one thread\n");
}

static void memory_survives_random_calls_of_threads(void) {
    run_in_threads_and_children(call_at_random);
}

// Linux takes all advice about the caller's own memory since 6.13.
static void advice_to_ones_own_process_holds(void) {
    const int WIPE = 18, GUARD = 102;
    int self = syscall(SYS_pidfd_open, getpid(), 0);
    NEED(self >= 0);
    for (int round = 0; round < 20; round++) {
        for (int advice = WIPE; advice <= GUARD; advice += GUARD - WIPE) {
            unsigned char *at = map_pages(8);
            memset(at, 5, 8 * page);
            struct {
                void *start;
                size_t length;
            } vector = {at, advice == GUARD ? page : 8 * page};
            syscall(SYS_process_madvise, self, &vector, 1ul, advice, 0ul);
            NEED(munmap(at, 8 * page) == 0);
            at = map_pages(8);
            NEED(at[0] == 0 && at[7 * page] == 0);
            memset(at, 6, 8 * page);
            pid_t child = fork();
            if (child == 0) _exit(at[0] + at[7 * page]);
            int status;
            NEED(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 12);
            NEED(munmap(at, 8 * page) == 0);
        }
    }
    SAY("well\n");
}

static void *drop_below(void *unused) {
    for (int i = 0; i < 40; i++) {
        unsigned char *frame = __builtin_frame_address(0);
        unsigned char *low = (unsigned char *)((uintptr_t)(frame - 600) & -page) - 8 * page;
        NEED(madvise(low, 8 * page, MADV_DONTNEED) == 0);
    }
    return unused;
}

static void the_stack_below_may_be_dropped(void) {
    finish(start(drop_below, NULL));
    SAY("well\n");
}

// Memory of which the program drops parts again and again: a runtime may serve that.
enum { DROPS = 30, AREA = 1024, PART = 40 };

static long wrong_pages(const unsigned char *at, size_t pages, int value) {
    long wrong = 0;
    for (size_t i = 0; i < pages * page; i += 512) wrong += at[i] != value;
    return wrong;
}

static void dropped_memory_is_zero_each_time(void) {
    unsigned char *at = map_pages(AREA);
    long wrong = 0;
    for (int round = 0; round < DROPS * 4; round++) {
        unsigned char *part = at + round % 4 * 3 * PART * page;
        for (size_t k = 0; k < PART; k += 1 + round % 7) memset(part + k * page, 1, page);
        part[-(round % 4 != 0)] = part[PART * page] = 9;
        NEED(madvise(part, PART * page, MADV_DONTNEED) == 0);
        wrong += wrong_pages(part, PART, 0) + (part[PART * page] != 9);
    }
    SAY("%ld\n", wrong);
}

static int numbered_file(int pages, int named) {
    char name[] = "/tmp/dropped-XXXXXX";
    int file = named ? mkstemp(name) : memfd_create("dropped", 0);
    NEED(file >= 0);
    for (int i = 0; i < pages; i++) {
        unsigned char bytes[4096];
        memset(bytes, 100 + i, sizeof bytes);
        NEED(write(file, bytes, sizeof bytes) == sizeof bytes);
    }
    if (named) unlink(name);
    return file;
}

static void dropped_memory_has_the_files_bytes_again(void) {
    for (int named = 0; named < 2; named++) {
        int file = numbered_file(8, named);
        unsigned char *at = map_pages(AREA);
        int flags = MAP_PRIVATE | MAP_FIXED;
        NEED(mmap(at + 4 * page, 6 * page, PROT_READ | PROT_WRITE, flags, file, page) == at + 4 * page);
        long wrong = 0;
        for (int round = 0; round < DROPS; round++) {
            memset(at, 1, PART * page);
            unsigned char byte = round;
            NEED(pwrite(file, &byte, 1, 3 * page) == 1);
            NEED(madvise(at, PART * page, MADV_DONTNEED) == 0);
            wrong += wrong_pages(at, 4, 0) + wrong_pages(at + 10 * page, PART - 10, 0) + (at[6 * page] != round);
            for (int i = 0; i < 6; i++) wrong += at[(4 + i) * page + 7] != 101 + i;
        }
        unsigned char byte;
        NEED(pread(file, &byte, 1, 2 * page) == 1);
        SAY("%ld %d\n", wrong, byte);
    }
}

static void drop_often(unsigned char *at) {
    for (int round = 0; round < DROPS; round++) {
        memset(at, 1, PART * page);
        NEED(madvise(at, PART * page, MADV_DONTNEED) == 0);
        NEED(wrong_pages(at, PART, 0) == 0);
    }
}

static void a_mapping_may_change_between_drops(void) {
    unsigned char *at = map_pages(AREA), *middle = at + 8 * page;
    int file = numbered_file(8, 0);
    drop_often(at);
    memset(at, 1, PART * page);
    NEED(mprotect(middle, page, PROT_READ) == 0);
    SAY_CALL(madvise(at, PART * page, MADV_DONTNEED));
    SAY("%d %d ", middle[0], faults(middle));
    NEED(mprotect(middle, page, PROT_READ | PROT_WRITE) == 0);
    drop_often(at);
    NEED(mmap(middle, 4 * page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == middle);
    for (int round = 0; round < DROPS; round++) {
        middle[5] = round;
        NEED(madvise(at, PART * page, MADV_DONTNEED) == 0 && middle[5] == round && middle[page] == 101);
    }
    NEED(mmap(middle, 4 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == middle);
    drop_often(at);
    pid_t child = fork();
    if (child == 0) {
        drop_often(at);
        _exit(munmap(middle, page));
    }
    say_end("the child", child);
    NEED(munmap(middle, page) == 0);
    memset(at, 1, 8 * page);
    SAY_CALL(madvise(at, PART * page, MADV_DONTNEED));
    SAY("%d %d\n", at[0], is_readable(middle));
    NEED(mmap(middle, page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == middle);
    SAY_CALL(madvise(at, PART * page, MADV_DONTNEED));
    NEED(mremap(at + 4 * page, page, page, MREMAP_MAYMOVE | MREMAP_FIXED, at + (AREA - 4) * page) != MAP_FAILED);
    SAY_CALL(madvise(at, PART * page, MADV_DONTNEED));
}

static void locked_memory_is_not_dropped(void) {
    unsigned char *at = map_pages(AREA);
    drop_often(at);
    NEED(mlock(at + page, page) == 0);
    SAY_CALL(madvise(at, PART * page, MADV_DONTNEED));
    NEED(munlock(at + page, page) == 0);
    drop_often(at);
}

// Drops parts of an area at random, and changes its mappings, with a copy of what each page should hold.
static int maps_files;
static void *drop_at_random(void *number) {
    enum { PARTS = 4, LONG = 6 };
    unsigned seed = 55 * (unsigned)(uintptr_t)number;
    unsigned char *at = map_pages(AREA), holds[PARTS * LONG] = {0}, dropped[PARTS * LONG] = {0};
    int file = numbered_file(8, 0);
    for (int round = 0; round < 30000; round++) {
        size_t from = next_random(&seed) % (PARTS * LONG), part = next_random(&seed) % PARTS * LONG;
        unsigned char *one = at + from * page;
        int kind = next_random(&seed) % 1000;
        if (kind < 500) {
            NEED(madvise(at + part * page, LONG * page, MADV_DONTNEED) == 0);
            memcpy(holds + part, dropped + part, LONG);
        } else if (kind < 502 && maps_files) {
            NEED(mmap(one, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, file, from % 8 * page) == one);
            holds[from] = dropped[from] = 100 + from % 8;
        } else if (kind < 504) {
            int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
            NEED(mmap(one, page, PROT_READ | PROT_WRITE, flags, -1, 0) == one);
            holds[from] = dropped[from] = 0;
        } else if (kind < 505) {
            NEED(mprotect(one, page, PROT_READ) == 0);
            NEED(madvise(at + part * page, LONG * page, MADV_DONTNEED) == 0);
            NEED(mprotect(one, page, PROT_READ | PROT_WRITE) == 0);
            memcpy(holds + part, dropped + part, LONG);
        } else {
            holds[from] = 1 + next_random(&seed) % 90;
            memset(one, holds[from], page);
        }
        for (int i = 0; i < PARTS * LONG; i++) NEED(at[i * page] == holds[i] && at[i * page + 4095] == holds[i]);
    }
    NEED(munmap(at, AREA * page) == 0 && close(file) == 0);
    return NULL;
}

static void dropped_memory_survives_random_calls_of_threads(void) {
    run_in_threads_and_children(drop_at_random);
}

static void dropped_files_survive_random_calls_of_threads(void) {
    maps_files = 1;
    dropped_memory_survives_random_calls_of_threads();
}

RULES(RULE(fresh_memory_is_zero), RULE(memory_that_was_read_only_is_zero_too), RULE(the_rest_of_a_mapping_stays),
      RULE(two_mappings_may_be_unmapped_as_one), RULE(protection_holds), RULE(fixed_mappings_replace), RULE(fixed_mappings_stay_beside_new_ones),
      RULE(an_address_is_taken_as_a_hint),
      RULE(what_was_unmapped_may_be_mapped_at_its_address), RULE(mremap_keeps_the_content), RULE(advice_holds),
      RULE(unmapped_memory_is_unknown_to_mincore), RULE(wrong_arguments_are_refused), RULE(lengths_are_rounded_up),
      RULE(a_child_has_a_copy), RULE(threads_that_map_may_fork), RULE(a_vfork_child_uses_the_same_memory),
      RULE(the_list_of_mappings_is_right), RULE(a_limit_counts_all_memory), RULE(locked_memory_is_counted),
      RULE(a_filter_sees_the_programs_calls_only),
      RULE(shared_memory_is_shared), RULE(nothing_leaks), RULE(many_mappings_live_at_once), RULE(any_thread_may_unmap),
      RULE(a_handler_may_map), RULE(the_heap_grows_and_shrinks), RULE(code_may_be_made),
      RULE(io_reads_and_writes_pool_memory), RULE(advice_to_ones_own_process_holds),
      RULE(the_stack_below_may_be_dropped), RULE(dropped_memory_is_zero_each_time),
      RULE(dropped_memory_has_the_files_bytes_again), RULE(a_mapping_may_change_between_drops),
      RULE(locked_memory_is_not_dropped), RULE(dropped_memory_survives_random_calls_of_threads),
      RULE(dropped_files_survive_random_calls_of_threads), RULE(memory_survives_random_calls),
      RULE(memory_survives_random_calls_of_threads))
