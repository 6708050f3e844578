// Private mappings of files: each thread sees what any thread writes there, and the file never does.
#include "rule.h"

enum { PAGES = 1024 };

static char name[] = "/tmp/filesXXXXXX";
static int file;
static unsigned char *memory;

// The byte that the file has in a page.
static unsigned char in_file(size_t index) { return index * 7 + 1; }

// Maps a new file of PAGES pages privately, from page `first` on.
static void map_file(int rights, size_t first) {
    static unsigned char bytes[4096];
    file = mkstemp(name);
    NEED(file >= 0 && unlink(name) == 0);
    for (size_t i = 0; i < PAGES; i++) {
        memset(bytes, in_file(i), page);
        NEED(write(file, bytes, page) == (ssize_t)page);
    }
    memory = mmap(NULL, (PAGES - first) * page, rights, MAP_PRIVATE, file, first * page);
    NEED(memory != MAP_FAILED);
}

// Says whether the file is as it was made.
static void say_file(void) {
    unsigned char byte;
    size_t changed = 0;
    for (size_t i = 0; i < PAGES * page; i += page / 4) {
        NEED(pread(file, &byte, 1, i) == 1);
        changed += byte != in_file(i / page);
    }
    SAY("%zu places of the file have changed\n", changed);
}

static uint64_t sum_of(size_t pages) {
    uint64_t sum = 0;
    for (size_t i = 0; i < pages * page; i += 64) sum = (sum ^ memory[i]) * 1099511628211u;
    return sum;
}

static void in_thread(void *(*body)(void *), void *argument) { finish(start(body, argument)); }

static void *say_sum(void *pages) {
    SAY("%llx\n", (unsigned long long)sum_of((size_t)pages));
    return NULL;
}

static void *write_byte(void *at) {
    memory[(size_t)at] = 200;
    return NULL;
}

static void all_threads_see_what_one_writes(void) {
    map_file(PROT_READ | PROT_WRITE, 0);
    in_thread(say_sum, (void *)PAGES);
    in_thread(write_byte, (void *)(5 * page + 3 * 64));
    in_thread(say_sum, (void *)PAGES);
    memory[PAGES * page - 64] = 3;
    in_thread(say_sum, (void *)PAGES);
    in_thread(write_byte, (void *)(PAGES * page - 64));
    say_sum((void *)PAGES);
    say_file();
}

static sem_t wanted, seen;

static void *read_again(void *unused) {
    for (int i = 0; i < 3; i++) {
        sem_wait(&wanted);
        say_sum((void *)PAGES);
        sem_post(&seen);
    }
    return unused;
}

static void a_thread_that_has_read_sees_what_is_written(void) {
    map_file(PROT_READ | PROT_WRITE, 0);
    pthread_t reader = start(read_again, NULL);
    sem_post(&wanted);
    sem_wait(&seen);
    in_thread(write_byte, (void *)(300 * page));
    memory[17 * page + 64] = 1;
    sem_post(&wanted);
    sem_wait(&seen);
    NEED(pread(file, memory + 800 * page + 64, page, 0) == (ssize_t)page);
    sem_post(&wanted);
    sem_wait(&seen);
    finish(reader);
    say_file();
}

static void a_mapping_may_begin_inside_of_a_file(void) {
    map_file(PROT_READ | PROT_WRITE, 3);
    NEED(memory[0] == in_file(3));
    in_thread(write_byte, (void *)(700 * page));
    for (size_t i = 0; i < PAGES - 3; i++)
        if (memory[i * page] != in_file(i + 3)) SAY("page %zu has %u\n", i, memory[i * page]);
    NEED(munmap(memory + 100 * page, 500 * page) == 0);
    in_thread(write_byte, (void *)(99 * page));
    in_thread(write_byte, (void *)(600 * page));
    SAY("%u %u %u %u\n", memory[98 * page], memory[99 * page], memory[600 * page], memory[601 * page]);
    say_file();
}

static void *read_here(void *at) {
    NEED(pread(file, memory + (size_t)at, 3 * page, 0) == (ssize_t)(3 * page));
    return NULL;
}

static void calls_write_there(void) {
    map_file(PROT_READ | PROT_WRITE, 0);
    in_thread(read_here, (void *)(40 * page + 100));
    in_thread(read_here, (void *)(PAGES * page - 3 * page));
    struct iovec {
        void *base;
        size_t length;
    } parts[2] = {{memory + 500 * page, 2 * page}, {memory + 601 * page - 5, 10}};
    SAY_CALL(syscall(SYS_preadv, file, parts, 2, 9 * page, 0));
    NEED(clock_gettime(CLOCK_MONOTONIC, (void *)(memory + 800 * page - 8)) == 0);
    memset(memory + 800 * page - 8, 0, 16);
    int ends[2];
    NEED(pipe((void *)(memory + 900 * page)) == 0);
    memcpy(ends, memory + 900 * page, sizeof ends);
    SAY_CALL(write(ends[1], memory + 700 * page, page));
    SAY_CALL(read(ends[0], memory + 710 * page + 50, page));
    memset(memory + 900 * page, 0, sizeof ends);
    in_thread(say_sum, (void *)PAGES);
    say_file();
}

static void rights_may_come_later(void) {
    map_file(PROT_READ, 0);
    in_thread(say_sum, (void *)PAGES);
    NEED(mprotect(memory + 64 * page, 300 * page, PROT_READ | PROT_WRITE) == 0);
    in_thread(write_byte, (void *)(64 * page));
    in_thread(write_byte, (void *)(363 * page));
    NEED(mprotect(memory + 64 * page, 20 * page, PROT_NONE) == 0);
    NEED(mprotect(memory + 64 * page, 20 * page, PROT_WRITE) == 0);
    in_thread(write_byte, (void *)(70 * page));
    NEED(mprotect(memory, PAGES * page, PROT_READ) == 0);
    in_thread(say_sum, (void *)PAGES);
    say_file();
}

static void *write_read_only(void *unused) {
    memory[0] = 1;
    return unused;
}

static void a_right_that_is_missing_is_a_fault(void) {
    map_file(PROT_READ, 0);
    pid_t child = fork();
    if (child == 0) {
        in_thread(write_read_only, NULL);
        _exit(0);
    }
    say_end("a child that writes", child);
    say_sum((void *)PAGES);
}

static void a_child_has_its_own(void) {
    map_file(PROT_READ | PROT_WRITE, 0);
    in_thread(write_byte, (void *)(8 * page));
    pid_t child = fork();
    if (child == 0) {
        say_sum((void *)PAGES);
        in_thread(write_byte, (void *)(9 * page));
        in_thread(write_byte, (void *)(512 * page));
        say_sum((void *)PAGES);
        fflush(stdout);
        _exit(0);
    }
    say_end("a child", child);
    in_thread(write_byte, (void *)(1000 * page));
    in_thread(say_sum, (void *)PAGES);
    say_file();
}

static void *make_child_that_writes(void *unused) {
    pid_t child = vfork();
    if (child == 0) {
        memory[20 * page] = 99;
        _exit(memory[21 * page] == in_file(21) ? 5 : 6);
    }
    say_end("a child", child);
    return unused;
}

static void a_vfork_child_writes_to_the_same(void) {
    map_file(PROT_READ | PROT_WRITE, 0);
    in_thread(make_child_that_writes, NULL);
    SAY("%u\n", memory[20 * page]);
    in_thread(say_sum, (void *)PAGES);
    say_file();
}

static void a_mapping_that_moves_keeps_what_was_written(void) {
    map_file(PROT_READ | PROT_WRITE, 0);
    in_thread(write_byte, (void *)(30 * page));
    in_thread(write_byte, (void *)(400 * page));
    memory = mremap(memory, PAGES * page, PAGES / 2 * page, 0);
    NEED(memory != MAP_FAILED);
    unsigned char *target = map_pages(PAGES);
    memory = mremap(memory, PAGES / 2 * page, PAGES / 2 * page, MREMAP_MAYMOVE | MREMAP_FIXED, target);
    NEED(memory == target);
    in_thread(say_sum, (void *)(PAGES / 2));
    in_thread(write_byte, (void *)(31 * page));
    in_thread(say_sum, (void *)(PAGES / 2));
    say_file();
}

static void a_mapping_that_was_only_read_moves(void) {
    map_file(PROT_READ | PROT_WRITE, 2);
    in_thread(say_sum, (void *)(PAGES - 2));
    unsigned char *target = map_pages(PAGES);
    memory = mremap(memory, (PAGES - 2) * page, (PAGES - 2) * page, MREMAP_MAYMOVE | MREMAP_FIXED, target);
    NEED(memory == target);
    in_thread(write_byte, (void *)(31 * page));
    in_thread(say_sum, (void *)(PAGES - 2));
    say_file();
}

// A mapping of which a part was written to shows more of its file when it grows, in its place and elsewhere.
static void a_mapping_that_grows_shows_its_file(void) {
    map_file(PROT_READ | PROT_WRITE, 0);
    for (size_t pages = PAGES / 2; pages >= PAGES / 4; pages /= 2) {
        memory = mmap(NULL, PAGES * page, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
        NEED(memory != MAP_FAILED);
        memory = mremap(memory, PAGES * page, pages * page, 0);
        NEED(memory != MAP_FAILED);
        in_thread(write_byte, (void *)(3 * page));
        in_thread(write_byte, (void *)((pages - 2) * page));
        unsigned char *after = memory + pages * page;
        if (pages < PAGES / 2) NEED(mmap(after, page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == after);
        unsigned char *grown = mremap(memory, pages * page, PAGES * page, MREMAP_MAYMOVE);
        NEED(grown != MAP_FAILED);
        memory = grown;
        in_thread(say_sum, (void *)PAGES);
        in_thread(write_byte, (void *)((PAGES - 5) * page));
        in_thread(say_sum, (void *)PAGES);
    }
    // The whole is one mapping.
    memory = mremap(memory, PAGES * page, PAGES * page, MREMAP_MAYMOVE | MREMAP_FIXED, map_pages(PAGES));
    NEED(memory != MAP_FAILED);
    in_thread(say_sum, (void *)PAGES);
    say_file();
}

// Two mappings beside each other do not grow as one.
static void two_mappings_are_not_one(void) {
    map_file(PROT_READ | PROT_WRITE, 0);
    memory = map_pages(4 * PAGES);
    for (size_t i = 0; i < 2; i++) {
        unsigned char *at = memory + i * PAGES * page;
        NEED(mmap(at, PAGES * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, file, 0) == at);
    }
    NEED(munmap(memory + 2 * PAGES * page, 2 * PAGES * page) == 0);
    for (int i = 0; i < 2; i++) {
        void *grown = mremap(memory, 2 * PAGES * page, 3 * PAGES * page, MREMAP_MAYMOVE);
        SAY("%d %d\n", grown == MAP_FAILED, errno);
        in_thread(write_byte, (void *)(3 * page));
    }
}

static void the_descriptor_and_the_name_may_go(void) {
    map_file(PROT_READ | PROT_WRITE, 0);
    int kept = dup(file);
    NEED(close(file) == 0);
    in_thread(write_byte, (void *)(5 * page));
    in_thread(say_sum, (void *)PAGES);
    // The next file gets the same number, and must not be seen.
    NEED(open("/dev/null", O_RDONLY) == file);
    in_thread(write_byte, (void *)(600 * page));
    in_thread(say_sum, (void *)PAGES);
    file = kept;
    say_file();
}

static void memory_may_be_made_before_it_is_used(void) {
    map_file(PROT_READ | PROT_WRITE, 0);
    SAY_CALL(madvise(memory + 10 * page, 50 * page, 23)); // MADV_POPULATE_WRITE
    SAY_CALL(madvise(memory + 200 * page, 50 * page, 22)); // MADV_POPULATE_READ
    in_thread(write_byte, (void *)(20 * page));
    in_thread(write_byte, (void *)(220 * page));
    in_thread(say_sum, (void *)PAGES);
    say_file();
}

static void *write_parts(void *number) {
    unsigned seed = (unsigned)(size_t)number;
    for (int i = 0; i < 400; i++) {
        seed = seed * 1103515245 + 12345;
        // Each thread has pages of its own between those of others.
        size_t at = (seed >> 8) % (PAGES / 4) * 4 + (size_t)number;
        memory[at * page + i] = seed >> 24;
        if (memory[at * page + page - 1] != in_file(at)) SAY("page %zu\n", at);
    }
    return NULL;
}

static void threads_write_to_pages_beside_each_other(void) {
    map_file(PROT_READ | PROT_WRITE, 0);
    pthread_t threads[4];
    for (size_t i = 0; i < 4; i++) threads[i] = start(write_parts, (void *)i);
    for (int i = 0; i < 4; i++) finish(threads[i]);
    in_thread(say_sum, (void *)PAGES);
    say_file();
}

static int ends[2];
static sem_t begun;

static void *write_to_pipe(void *unused) {
    sem_post(&begun);
    SAY_CALL(write(ends[1], memory, 100));
    return unused;
}

// The pipe is full, so the thread waits in its call, or is about to.
static void a_call_that_waits_keeps_its_memory(void) {
    map_file(PROT_READ, 0);
    NEED(pipe(ends) == 0 && fcntl(ends[1], F_SETPIPE_SZ, 4096) >= 0);
    unsigned char *bytes = map_pages(1);
    NEED(write(ends[1], bytes, page) == (ssize_t)page);
    pthread_t writer = start(write_to_pipe, NULL);
    sem_wait(&begun);
    NEED(mprotect(memory, PAGES * page, PROT_READ | PROT_WRITE) == 0);
    memory[page + 5] = 1;
    memory = mremap(memory, PAGES * page, PAGES / 2 * page, 0);
    NEED(read(ends[0], bytes, page) == (ssize_t)page);
    finish(writer);
    say_file();
}

static void lost_and_won_rights_count_at_once(void) {
    map_file(PROT_READ, 0);
    NEED(pipe(ends) == 0 && write(ends[1], memory, 10) == 10);
    NEED(mprotect(memory, PAGES * page, PROT_WRITE) == 0);
    SAY_CALL(read(ends[0], memory, 10));
    NEED(getrlimit(RLIMIT_NOFILE, (void *)(memory + 300 * page)) == 0);
    memset(memory + 300 * page, 0, sizeof(struct rlimit));
    NEED(mprotect(memory, PAGES * page, PROT_READ) == 0);
    say_sum((void *)PAGES);
    say_file();
}

static void the_programs_locks_of_a_file_stay(void) {
    map_file(PROT_READ | PROT_WRITE, 0);
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    SAY_CALL(fcntl(file, F_SETLK, &lock));
    NEED(munmap(memory, PAGES * page) == 0);
    pid_t child = fork();
    if (child == 0) {
        NEED(fcntl(file, F_GETLK, &lock) == 0);
        _exit(lock.l_type == F_WRLCK ? 7 : 8);
    }
    say_end("a child that looks for the lock", child);
}

static void *make_child_that_maps(void *unused) {
    static unsigned char *volatile mapped;
    pid_t child = vfork();
    if (child == 0) {
        mapped = mmap(NULL, PAGES * page, PROT_READ, MAP_PRIVATE, file, 0);
        _exit(mapped == MAP_FAILED);
    }
    say_end("a child", child);
    SAY("%u\n", mapped[page * 77] - in_file(77));
    return unused;
}

static void a_mapping_of_a_vfork_child_stays(void) {
    map_file(PROT_READ | PROT_WRITE, 0);
    in_thread(make_child_that_maps, NULL);
    in_thread(write_byte, (void *)(77 * page));
    say_file();
}

static void equal_parts_are_one_mapping_again(void) {
    map_file(PROT_READ, 0);
    for (int round = 0; round < 70; round++)
        for (size_t i = 0; i < PAGES; i++) {
            NEED(mprotect(memory + i * page, page, PROT_NONE) == 0);
            NEED(mprotect(memory + i * page, page, PROT_READ) == 0);
        }
    in_thread(say_sum, (void *)PAGES);
}

// Reads a byte. Returns the signal of the fault, or 0.
static int is_refused(volatile unsigned char *at) {
    static volatile unsigned char byte;
    int caught = sigsetjmp(back, 1);
    if (caught == 0) byte ^= *at;
    return caught;
}

static void *touch_behind(void *end) {
    unsigned char *behind = memory + 2 * page, *last = (unsigned char *)end - 1;
    SAY("%d %d %d ", is_refused(memory + page), is_refused(behind), is_refused(last));
    SAY("%d %d %d\n", faults(memory + page), faults(behind), faults(last));
    SAY("%d %d %d\n", is_refused(memory), is_refused(behind), is_refused(last));
    SAY_CALL(write(ends[1], behind, 1));
    SAY_CALL(pread(file, behind, 1, 0));
    return NULL;
}

// The file ends in the second page. Each page behind that is a SIGBUS, before and after a write.
static void memory_behind_the_end_is_no_memory(void) {
    signal(SIGBUS, jump_back);
    NEED(pipe(ends) == 0);
    for (size_t pages = 4; pages <= PAGES; pages *= PAGES / 4) {
        map_file(PROT_READ, 0);
        NEED(munmap(memory, PAGES * page) == 0 && ftruncate(file, page + page / 2) == 0);
        memory = mmap(NULL, pages * page, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
        NEED(memory != MAP_FAILED);
        touch_behind(memory + pages * page);
        in_thread(touch_behind, memory + pages * page);
        SAY("%d\n", memory[page]);
        strcpy(name, "/tmp/filesXXXXXX");
    }
}

RULES(RULE(memory_behind_the_end_is_no_memory), RULE(all_threads_see_what_one_writes), RULE(a_thread_that_has_read_sees_what_is_written),
      RULE(a_mapping_may_begin_inside_of_a_file), RULE(calls_write_there),
      RULE(rights_may_come_later), RULE(a_right_that_is_missing_is_a_fault), RULE(a_child_has_its_own),
      RULE(a_vfork_child_writes_to_the_same), RULE(a_mapping_that_moves_keeps_what_was_written),
      RULE(a_mapping_that_was_only_read_moves), RULE(a_mapping_that_grows_shows_its_file), RULE(two_mappings_are_not_one), RULE(the_descriptor_and_the_name_may_go),
      RULE(memory_may_be_made_before_it_is_used), RULE(threads_write_to_pages_beside_each_other),
      RULE(a_call_that_waits_keeps_its_memory), RULE(lost_and_won_rights_count_at_once), RULE(the_programs_locks_of_a_file_stay),
      RULE(a_mapping_of_a_vfork_child_stays), RULE(equal_parts_are_one_mapping_again))
