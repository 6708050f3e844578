// Makes a call on a reservation, or on plain memory beside another thread, and another one in a handler that
// comes after any instruction of the first (`step`): `interrupted CALL CALL_IN_HANDLER`.
#include "marks.h"
#include "rule.h"

enum { PAGES = 64, FIRST = 4, WRITTEN = 77 };

// The part that a call finds, as the last use has left it.
static const size_t LEFT[][2] = {{0, FIRST}, {8, 40}, {0, 10}, {0, FIRST}, {8, 40}, {0, 1}, {0, 1}, {0, 1}};
enum { MAPS = 5, UNMAPS, PROTECTS };

static unsigned char *at;
static int in_handler, has_come;

static unsigned char *reserve(void) {
    void *reserved = mmap(NULL, PAGES * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    NEED(reserved != MAP_FAILED);
    return reserved;
}

static void open_part(unsigned char *of, size_t from, size_t to) {
    NEED(mprotect(of + from * page, (to - from) * page, PROT_READ | PROT_WRITE) == 0);
}

// Maps a reservation, opens a part, which must be zero, leaves bytes there, and unmaps it.
static void use(size_t from, size_t to) {
    unsigned char *one = reserve();
    open_part(one, from, to);
    for (size_t i = from; i < to; i++) NEED(one[i * page] == 0);
    memset(one + from * page, 0x11, (to - from) * page);
    NEED(munmap(one, PAGES * page) == 0);
}

// Maps plain memory that is no block.
static unsigned char *map_plain(void) {
    void *plain = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    NEED(plain != MAP_FAILED);
    return plain;
}

// Maps such memory, which must be zero, changes its rights, and unmaps it.
static void use_plain(void) {
    unsigned char *one = map_plain();
    NEED(*one == 0);
    *one = 1;
    NEED(mprotect(one, page, PROT_READ) == 0);
    NEED(munmap(one, page) == 0);
}

static void *sleep_on(void *unused) {
    for (;;) pause();
    return unused;
}

// Whether the call in the handler writes to a page that must keep this.
static int writes_apart(void) {
    return in_handler == 1 || in_handler == 2;
}

static void make_child(void) {
    pid_t child = fork();
    if (child == 0) {
        use(0, 8);
        _exit(7);
    }
    int status;
    NEED(waitpid(child, &status, 0) == child && status == 7 << 8);
}

static void handle(int signal) {
    int before = errno, flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    (void)signal;
    has_come = 1;
    switch (in_handler) {
    case 0: close(open("/proc/self/maps", O_RDONLY)); break;
    case 1: open_part(at, 12, 16); break;
    case 2: NEED(mmap(at + 12 * page, 4 * page, 3, flags, -1, 0) == at + 12 * page); break;
    case 3: use(0, 8); break;
    case 4:
        open_part(at, 0, 30);
        memset(at + 10 * page, WRITTEN, 20 * page);
        break;
    case 5: NEED(mprotect(at + 12 * page, 4 * page, PROT_READ) == 0); break;
    case 6: make_child(); break;
    case 7: use_plain(); break;
    }
    if (writes_apart()) at[12 * page] = WRITTEN;
    errno = before;
}

// Makes a call between the marks. Returns whether it has ended before the signal came.
static long make_call(int call) {
    unsigned char *other = NULL;
    int failed = 0;
    unsigned char *plain = call > MAPS ? map_plain() : NULL;
    if (plain) *plain = 1;
    if (call == 2) open_part(at, 0, 10);
    begin_part();
    switch (call) {
    case 0: failed = mprotect(at, FIRST * page, PROT_READ | PROT_WRITE); break;
    case 1: failed = mprotect(at + page, FIRST * page, PROT_READ | PROT_WRITE); break;
    case 2: failed = mprotect(at, 10 * page, PROT_READ | PROT_WRITE); break;
    case 3: other = mmap(NULL, PAGES * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0); break;
    case 4: failed = mprotect(at, FIRST * page, PROT_READ); break;
    case MAPS: plain = map_plain(); break;
    case UNMAPS: failed = munmap(plain, page); break;
    case PROTECTS: failed = mprotect(plain, page, PROT_READ); break;
    }
    long is_over = end_part();
    NEED(failed == 0 && other != MAP_FAILED && other != at);
    if (call < 3) at[page] = at[3 * page] = 1;
    if (call == MAPS) NEED(*plain == 0);
    if (call == PROTECTS) NEED(*plain == 1 && faults(plain) == SIGSEGV);
    if (call == UNMAPS) NEED(faults(plain) == SIGSEGV);
    if (plain && call != UNMAPS) NEED(munmap(plain, page) == 0);
    if (other) NEED(munmap(other, PAGES * page) == 0);
    return is_over;
}

int main(int count, char **words) {
    NEED(count == 3);
    int call = atoi(words[1]);
    in_handler = atoi(words[2]);
    struct sigaction action = {.sa_handler = handle};
    NEED(sigaction(SIGUSR1, &action, NULL) == 0);
    if (call >= MAPS) start(sleep_on, NULL);
    for (int i = 0; i < 1000; i++) getppid();
    for (long is_over = 0, round = 0; !is_over; round++) {
        for (int i = 0; i < 2; i++) use(LEFT[call][0], LEFT[call][1]);
        has_come = 0;
        at = reserve();
        is_over = make_call(call);
        if (has_come && writes_apart() && at[12 * page] != WRITTEN) SAY("round %ld: a write is lost\n", round);
        NEED(munmap(at, PAGES * page) == 0);
        for (int i = 0; i < 2; i++) use(0, 40);
    }
    SAY("the part has been interrupted everywhere\n");
    return 0;
}
