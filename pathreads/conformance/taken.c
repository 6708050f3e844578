// Rules of memory that one thread takes away while another has it, which computes meanwhile: it makes no call that could
// tell it.
#include "rule.h"

#include <stdatomic.h>

#define REGIONS 100

static unsigned char *regions[REGIONS];
// What the other thread is to do, and the number of the last thing that it has done.
static _Atomic int wanted, done;
static int ends[2];
static unsigned char *_Atomic place;
static _Atomic size_t length;

enum { TOUCH = 1, CHECK, WRITE, READ, FORK, THREAD, ASK, SAY_FAULT, SAY_FAULTS, STOP };

static void await(int number) {
    while (atomic_load(&done) != number) sched_yield();
}

static void have_done(int what) {
    static int number;
    number++;
    atomic_store(&wanted, what | number << 8);
    await(number);
}

// Maps regions that are no neighbours, with a number in each.
static void map_regions(int count, unsigned char value) {
    for (int i = 0; i < count; i++) {
        regions[i] = map_pages(3);
        NEED(munmap(regions[i] + 2 * page, page) == 0);
        regions[i][0] = value + i;
    }
}

static void unmap_regions(int count) {
    for (int i = 0; i < count; i++) NEED(munmap(regions[i], 2 * page) == 0);
}

static void map_again(unsigned char *at, size_t size, int rights) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    NEED(mmap(at, size, rights, flags, -1, 0) == at);
}

static siginfo_t seen;
static void note_fault(int signal, siginfo_t *information, void *context) {
    (void)context;
    seen = *information;
    siglongjmp(back, signal);
}

static void say_fault(volatile unsigned char *at) {
    struct sigaction action = {.sa_sigaction = note_fault, .sa_flags = SA_SIGINFO};
    NEED(sigaction(SIGSEGV, &action, NULL) == 0 && sigaction(SIGBUS, &action, NULL) == 0);
    int caught = sigsetjmp(back, 1);
    if (caught == 0) at[1]++;
    SAY("signal %d, code %d, %s\n", caught, caught ? seen.si_code : 0, !caught || seen.si_addr == at + 1 ? "there" : "elsewhere");
    signal(SIGSEGV, SIG_DFL);
    signal(SIGBUS, SIG_DFL);
}

static void *say_in_thread(void *with) {
    say_fault(place);
    return with;
}

static void do_as_wanted(int what) {
    unsigned char *at = place;
    switch (what) {
    case TOUCH:
        for (int i = 0; i < REGIONS && regions[i]; i++) regions[i][1] = regions[i][page + 1] = regions[i][0];
        break;
    case CHECK:
        for (size_t i = 0; i < length; i += page) NEED(at[i] == at[0]);
        at[1] = at[0];
        break;
    case WRITE: NEED(write(ends[1], at, length) == (ssize_t)length); break;
    case READ: NEED(read(ends[0], at, length) == (ssize_t)length); break;
    case FORK: {
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            say_fault(at);
            fflush(stdout);
            _exit(0);
        }
        say_end("a child", child);
        break;
    }
    case THREAD: finish(start(say_in_thread, NULL)); break;
    case ASK: {
        unsigned char present;
        SAY_CALL(mincore(at, page, &present));
        SAY_CALL(msync(at, page, MS_ASYNC));
        SAY_CALL(mprotect(at, page, PROT_READ));
        SAY_CALL(madvise(at, page, MADV_WILLNEED));
        SAY_CALL(madvise(at, page, MADV_DONTNEED));
        SAY_CALL(mremap(at, page, 2 * page, MREMAP_MAYMOVE));
        SAY_CALL(write(ends[1], at, 1));
        SAY_CALL(munmap(at, page));
        break;
    }
    case SAY_FAULT: say_fault(at); break;
    case SAY_FAULTS: {
        int count = 0;
        for (int i = 0; i < REGIONS; i++) count += faults(regions[i]) + faults(regions[i] + page) == 2 * SIGSEGV;
        SAY("%d regions are gone\n", count);
        break;
    }
    }
}

static void *compute(void *with) {
    for (int number = 1, now;; number++) {
        while ((now = atomic_load(&wanted)) >> 8 != number) __builtin_ia32_pause();
        if ((now & 255) == STOP) break;
        do_as_wanted(now & 255);
        atomic_store(&done, number);
    }
    atomic_store(&done, wanted >> 8);
    return with;
}

// Begins a thread that has lost memory before: a runtime may learn from that.
static pthread_t begin(void) {
    NEED(pipe(ends) == 0);
    pthread_t thread = start(compute, NULL);
    for (int i = 0; i < 3; i++) {
        map_regions(3, i);
        have_done(TOUCH);
        unmap_regions(3);
    }
    memset(regions, 0, sizeof regions);
    return thread;
}

static void end(pthread_t thread) {
    have_done(STOP);
    finish(thread);
}

static void a_thread_sees_what_is_mapped_anew(void) {
    pthread_t thread = begin();
    for (int i = 0; i < 600; i++) {
        size_t pages = i % 7 == 0 ? 300 : i % 5 + 1;
        length = pages * page;
        place = map_pages(pages);
        for (size_t j = 0; j < length; j += page) place[j] = i;
        have_done(CHECK);
        NEED(place[1] == (unsigned char)i && munmap(place, length) == 0);
    }
    end(thread);
    SAY("600 mappings\n");
}

static void memory_that_was_taken_is_gone(void) {
    pthread_t thread = begin();
    for (int i = 0; i < 3; i++) {
        map_regions(1, 7);
        have_done(TOUCH);
        place = regions[0] + i % 2 * page;
        unmap_regions(1);
        have_done(SAY_FAULT);
        have_done(SAY_FAULT);
    }
    end(thread);
}

// Only a part of what the thread has is taken.
static void the_rest_of_a_mapping_stays(void) {
    pthread_t thread = begin();
    unsigned char *all = map_pages(9);
    memset(all, 5, 9 * page);
    place = all;
    length = 9 * page;
    have_done(CHECK);
    NEED(munmap(all + 3 * page, 2 * page) == 0);
    place = all + 3 * page;
    have_done(SAY_FAULT);
    NEED(munmap(all + 5 * page, page) == 0 && munmap(all + 7 * page, page) == 0);
    place = all + 5 * page;
    have_done(SAY_FAULT);
    all[6 * page] = 9;
    for (int i = 0; i < 9; i++) {
        place = all + i * page;
        length = page;
        if (i < 3 || i == 6 || i == 8) have_done(CHECK);
    }
    place = all + 7 * page;
    have_done(SAY_FAULT);
    SAY("%d %d\n", all[6 * page + 1], all[1]);
    end(thread);
}

// More ranges than a runtime may remember for a thread.
static void many_regions_are_taken(void) {
    pthread_t thread = begin();
    for (int i = 0; i < 3; i++) {
        map_regions(REGIONS, i);
        have_done(TOUCH);
        unmap_regions(REGIONS);
        have_done(SAY_FAULTS);
    }
    map_regions(REGIONS, 3);
    have_done(TOUCH);
    unmap_regions(REGIONS);
    map_regions(REGIONS, 40);
    have_done(TOUCH);
    int right = 0;
    for (int i = 0; i < REGIONS; i++) right += regions[i][page + 1] == 40 + i;
    SAY("%d regions are there\n", right);
    end(thread);
}

static void other_memory_may_be_there_next(void) {
    pthread_t thread = begin();
    char path[] = "/tmp/taken-XXXXXX";
    int file = mkstemp(path);
    NEED(file >= 0 && unlink(path) == 0 && ftruncate(file, 2 * page) == 0 && pwrite(file, "file", 4, 0) == 4);
    for (int i = 0; i < 4; i++) {
        map_regions(1, 1);
        have_done(TOUCH);
        place = regions[0];
        NEED(munmap(place, 2 * page) == 0);
        if (i < 2) map_again(place, 2 * page, i ? PROT_READ : PROT_NONE);
        int flags = (i == 2 ? MAP_SHARED : MAP_PRIVATE) | MAP_FIXED;
        if (i >= 2) NEED(mmap(place, 2 * page, PROT_READ | PROT_WRITE, flags, file, 0) == place);
        have_done(SAY_FAULT);
        if (i != 0) SAY("%c\n", place[0] ? place[0] : '0');
        NEED(munmap(place, 2 * page) == 0);
        have_done(SAY_FAULT);
    }
    end(thread);
}

static void calls_find_what_is_there_now(void) {
    pthread_t thread = begin();
    unsigned char *bytes = malloc(64 * page);
    unsigned seed = 1;
    NEED(bytes && fcntl(ends[0], F_SETPIPE_SZ, 64 * page) > 0);
    for (int i = 0; i < 500; i++) {
        size_t pages = next_random(&seed) % 20 + 1;
        length = pages * page;
        place = map_pages(pages);
        memset(place, i, length);
        if (i % 2) have_done(CHECK);
        map_again(place, length, PROT_READ | PROT_WRITE);
        memset(place, i + 1, length);
        if (i % 3) {
            have_done(WRITE);
            NEED(read(ends[0], bytes, 64 * page) == (ssize_t)length);
        } else {
            memset(bytes, i + 1, length);
            NEED(write(ends[1], bytes, length) == (ssize_t)length);
            have_done(READ);
            memcpy(bytes, place, length);
        }
        for (size_t j = 0; j < length; j++) NEED(bytes[j] == (unsigned char)(i + 1));
        NEED(munmap(place, length) == 0);
    }
    free(bytes);
    end(thread);
    SAY("500 calls\n");
}

// Calls about memory find that there is none.
static void calls_know_that_it_is_gone(void) {
    pthread_t thread = begin();
    for (int i = 0; i < 2; i++) {
        map_regions(1, 1);
        have_done(TOUCH);
        place = regions[0];
        unmap_regions(1);
        if (i == 1) have_done(SAY_FAULT);
        have_done(ASK);
        have_done(SAY_FAULT);
    }
    end(thread);
}

static void a_call_without_memory_fails(void) {
    pthread_t thread = begin();
    map_regions(1, 1);
    have_done(TOUCH);
    place = regions[0];
    unmap_regions(1);
    SAY_CALL(write(ends[1], place, page));
    have_done(SAY_FAULT);
    end(thread);
}

static void copies_of_the_thread_have_it_not(void) {
    pthread_t thread = begin();
    static const int ways[] = {FORK, THREAD, FORK, THREAD};
    for (int i = 0; i < 4; i++) {
        map_regions(1, 7);
        have_done(TOUCH);
        place = regions[0];
        unmap_regions(1);
        if (i >= 2) map_again(place, page, PROT_READ | PROT_WRITE);
        have_done(ways[i]);
        have_done(SAY_FAULT);
        if (i >= 2) SAY("%d\n", place[1]);
        if (i >= 2) NEED(munmap(place, page) == 0);
    }
    end(thread);
}

static void *take_from_the_first(void *with) {
    unmap_regions(*(int *)with);
    return with;
}

// The first thread has the memory, and makes children then.
static void the_first_thread_loses_memory(void) {
    static int i, count;
    for (i = 0; i < 4; i++) {
        count = i % 2 ? REGIONS : 1;
        map_regions(count, 3);
        finish(start(take_from_the_first, &count));
        place = regions[0];
        do_as_wanted(FORK);
        do_as_wanted(THREAD);
        do_as_wanted(SAY_FAULT);
        fflush(stdout);
        pid_t child = vfork();
        if (child == 0) _exit(0);
        say_end("a child", child);
    }
}

static void *wait_for_bytes(void *with) {
    *(_Atomic int *)with = gettid();
    ssize_t got = read(ends[0], place, page);
    SAY("%zd bytes, %d\n", got, got > 0 ? place[got - 1] : errno);
    return with;
}

// A thread that waits in a call is told.
static void a_waiting_call_goes_on_with_what_is_there(void) {
    pthread_t computing = begin();
    for (int i = 0; i < 20; i++) {
        _Atomic int number = 0;
        place = map_pages(2);
        pthread_t thread = start(wait_for_bytes, (void *)&number);
        while (number == 0) sched_yield();
        until_in_call(number, SYS_read);
        until_asleep(number);
        NEED(munmap(place, page) == 0);
        map_again(place, page, PROT_READ | PROT_WRITE);
        NEED(write(ends[1], "abc", 3) == 3);
        finish(thread);
        NEED(munmap(place, 2 * page) == 0);
    }
    end(computing);
}

// Returns the bytes of memory in files without a name that this process has open.
static long in_files(void) {
    long blocks = 0;
    for (int file = 0; file < 70000; file++) {
        struct stat about;
        char path[40], target[200] = "";
        snprintf(path, sizeof path, "/proc/self/fd/%d", file);
        if (readlink(path, target, sizeof target - 1) > 0 && strstr(target, "memfd:") && stat(path, &about) == 0) {
            blocks += about.st_blocks;
        }
    }
    return blocks * 512;
}

// 20,000 mappings that another thread has had. Each is a part of another one.
static void memory_that_was_taken_is_given_back(void) {
    pthread_t thread = begin();
    long before = in_files();
    for (int i = 0; i < 200; i++) {
        map_regions(REGIONS, i);
        have_done(TOUCH);
        unmap_regions(REGIONS);
    }
    end(thread);
    SAY("%d\n", in_files() - before < 8 << 20);
}

static _Atomic int is_over;
static void *replace_it(void *with) {
    while (!is_over) map_again(with, 3 * page, PROT_READ | PROT_WRITE);
    return with;
}

// To a call there is always memory, before and after another thread maps other memory there.
static void memory_is_replaced_in_one_step(void) {
    unsigned char bytes[12288];
    NEED(pipe(ends) == 0);
    unsigned char *at = map_pages(3);
    pthread_t thread = start(replace_it, at);
    for (int i = 0; i < 5000; i++) {
        NEED(write(ends[1], at, 3 * page) == (ssize_t)(3 * page));
        NEED(read(ends[0], bytes, 3 * page) == (ssize_t)(3 * page));
        if (i % 4 == 0) at[i % 3 * page] = 1;
        NEED(write(ends[1], bytes, page) == (ssize_t)page && read(ends[0], at + page, page) == (ssize_t)page);
    }
    is_over = 1;
    finish(thread);
    SAY("5000 calls\n");
}

// Memory goes and comes at random, while all threads use what there is.
static void *use_and_take(void *with) {
    unsigned seed = (uintptr_t)with;
    static unsigned char *_Atomic shared[40];
    for (int i = 0; i < 4000; i++) {
        unsigned dice = next_random(&seed);
        unsigned char *own = atomic_exchange(&shared[dice % 40], NULL);
        if (!own) {
            own = map_pages(4);
            own[0] = own[3 * page] = dice;
        }
        NEED(own[0] == own[3 * page]);
        own[page]++;
        if (dice % 3 == 0) {
            NEED(munmap(own + page, page) == 0);
            map_again(own + page, page, PROT_READ | PROT_WRITE);
            NEED(own[page] == 0);
        }
        own = dice % 5 ? atomic_exchange(&shared[dice / 64 % 40], own) : own;
        if (own) NEED(own[0] == own[3 * page] && munmap(own, 4 * page) == 0);
    }
    return with;
}

static void threads_take_memory_from_each_other(void) {
    pthread_t threads[4];
    for (uintptr_t i = 0; i < 4; i++) threads[i] = start(use_and_take, (void *)(i + 1));
    for (int i = 0; i < 4; i++) finish(threads[i]);
    SAY("four threads\n");
}

RULES(RULE(a_thread_sees_what_is_mapped_anew), RULE(memory_that_was_taken_is_gone), RULE(the_rest_of_a_mapping_stays),
      RULE(many_regions_are_taken), RULE(other_memory_may_be_there_next), RULE(calls_find_what_is_there_now),
      RULE(calls_know_that_it_is_gone), RULE(a_call_without_memory_fails), RULE(copies_of_the_thread_have_it_not), RULE(the_first_thread_loses_memory),
      RULE(a_waiting_call_goes_on_with_what_is_there), RULE(memory_that_was_taken_is_given_back), RULE(memory_is_replaced_in_one_step), RULE(threads_take_memory_from_each_other))
