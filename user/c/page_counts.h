/* The counts of pages at a moment of rest: the sums of what /proc/PID/pagemap shows, frame by frame, are the
 * words of /proc/kpagecount, and the pages of each process are those that statm, status and smaps report. */
#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#ifndef PAGE
#define PAGE 4096L
#endif
/* Set if a process that is said to have stopped may still be in a call on another CPU, so that counts which
 * are wrong are looked at again. */
#ifndef MAY_SETTLE
#define MAY_SETTLE 0
#endif
/* Has RadixVM count reads of a mapped file in page tables (`read_refs=lodic`). */
#define MADV_COUNT_READS 0x52560001
#define PRESENT (1UL << 63)
#define FRAME(word) ((word) & ((1UL << 55) - 1))
#define MOST_COUNTED 1100
#define SLOTS (1L << 16)

/* On Linux only the pages between two addresses are compared. */
static int on_linux;
static unsigned long linux_start, linux_end;

static void check_counts(const char *part, int good)
{
    if (good)
        return;
    printf("page counts: %s: WRONG\n", part);
    fflush(stdout);
    _exit(1);
}

static uint64_t count_of(int counts, uint64_t frame)
{
    uint64_t count = 0;
    check_counts("kpagecount", pread(counts, &count, 8, frame * 8) == 8);
    return count;
}

/* How many pages show each frame, by the pagemaps: a hash table, with the frame's number plus one. */
struct frames {
    struct {
        uint32_t key, pages;
    } slots[SLOTS];
    long used;
    long pages[MOST_COUNTED];
};

static struct frames before, after;

static uint32_t *pages_of(struct frames *frames, uint64_t frame)
{
    uint64_t slot = frame * 40503 % SLOTS;
    check_counts("a table of frames with room", frames->used < SLOTS - 1);
    while (frames->slots[slot].key != 0 && frames->slots[slot].key != frame + 1)
        slot = (slot + 1) % SLOTS;
    frames->used += frames->slots[slot].key == 0;
    frames->slots[slot].key = frame + 1;
    return &frames->slots[slot].pages;
}

/* A process has ended, or changed its memory, since it was found. */
static int has_changed;

static int open_of(pid_t pid, const char *name)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
    int file = open(path, O_RDONLY);
    has_changed |= file < 0;
    return file;
}

static char *text_of(pid_t pid, const char *name)
{
    static char text[1 << 22];
    int file = open_of(pid, name);
    long done = 0, now;
    text[0] = 0;
    if (file < 0)
        return text;
    while ((now = read(file, text + done, sizeof text - 1 - done)) > 0)
        done += now;
    check_counts(name, now == 0 && done < (long)sizeof text - 1 && close(file) == 0);
    text[done] = 0;
    return text;
}

/* Adds the pages between two addresses. */
static long add(struct frames *frames, int pagemap, unsigned long start, unsigned long end)
{
    static uint64_t words[2048];
    long pages = 0;
    while (start < end) {
        long most = (end - start) / PAGE, want = most < 2048 ? most : 2048;
        if (pread(pagemap, words, want * 8, start / PAGE * 8) != want * 8) {
            has_changed = 1;
            return pages;
        }
        for (long i = 0; i < want; i++)
            if (words[i] & PRESENT) {
                pages++;
                ++*pages_of(frames, FRAME(words[i]));
            }
        start += want * PAGE;
    }
    return pages;
}

/* Returns the number of pages of a process. */
static long look_at(struct frames *frames, pid_t pid)
{
    int pagemap = open_of(pid, "pagemap");
    long pages = 0;
    if (pagemap < 0)
        return 0;
    for (char *line = text_of(pid, "maps"); *line; line = strchr(line, '\n') + 1) {
        unsigned long start, end;
        check_counts("a line of maps", sscanf(line, "%lx-%lx", &start, &end) == 2);
        if (!on_linux || (start >= linux_start && end <= linux_end))
            pages += add(frames, pagemap, start, end);
    }
    close(pagemap);
    return pages;
}

static void look_at_all(struct frames *frames, const pid_t *pids, int count)
{
    memset(frames, 0, sizeof *frames);
    for (int i = 0; i < count; i++)
        frames->pages[i] = look_at(frames, pids[i]);
}

/* Returns the sum in KiB of all lines of a text that begin with a name, those of mappings elsewhere left out
 * on Linux. */
static long sum(char *text, const char *name)
{
    long kib = 0;
    unsigned long start = linux_start, end = linux_start;
    for (char *line = text; *line; line = strchr(line, '\n') + 1) {
        sscanf(line, "%lx-%lx ", &start, &end);
        if (strncmp(line, name, strlen(name)) == 0 && (!on_linux || (start >= linux_start && end <= linux_end)))
            kib += atol(line + strlen(name));
    }
    return kib;
}

/* Returns whether a process reports these pages everywhere. Linux counts them in other files by and by. */
static int reports(pid_t pid, long pages)
{
    if (sum(text_of(pid, "smaps"), "Rss:") != pages * 4)
        return 0;
    if (on_linux)
        return 1;
    long statm = 0;
    sscanf(text_of(pid, "statm"), "%*d %ld", &statm);
    return statm == pages && sum(text_of(pid, "status"), "VmRSS:") == pages * 4 &&
        sum(text_of(pid, "smaps_rollup"), "Rss:") == pages * 4;
}

/* Returns whether the counts are those of the table, and those of all other frames are 0. On Linux other
 * frames belong to other processes. */
static int are_counts(int counts, struct frames *frames)
{
    static uint64_t words[1 << 15];
    long got;
    if (on_linux) {
        for (long slot = 0; slot < SLOTS; slot++)
            if (frames->slots[slot].key && count_of(counts, frames->slots[slot].key - 1) != frames->slots[slot].pages)
                return 0;
        return 1;
    }
    check_counts("lseek", lseek(counts, 0, SEEK_SET) == 0);
    for (uint64_t first = 0; (got = read(counts, words, sizeof words)) != 0; first += got / 8) {
        check_counts("read", got > 0 && got % 8 == 0);
        for (long i = 0; i < got / 8; i++)
            if (words[i] != 0 && *pages_of(frames, first + i) != words[i])
                return 0;
            else if (words[i] != 0)
                *pages_of(frames, first + i) = 0;
    }
    for (long slot = 0; slot < SLOTS; slot++)
        if (frames->slots[slot].pages != 0)
            return 0;
    return 1;
}

static int is_same(const struct frames *one, const struct frames *other)
{
    return memcmp(one, other, sizeof *one) == 0;
}

/* Compares everything. Looking needs memory, for which the kernel may take pages of the processes. So what
 * was seen counts if it is the same before and after. Returns whether it is. */
static int is_compared(int counts, const pid_t *pids, int count)
{
    int right = 1;
    has_changed = 0;
    look_at_all(&before, pids, count);
    look_at_all(&after, pids, count);
    for (int i = 0; i < count; i++)
        right &= reports(pids[i], after.pages[i]);
    right &= are_counts(counts, &after);
    look_at_all(&after, pids, count);
    if (has_changed || !is_same(&before, &after) || (MAY_SETTLE && !right))
        return 0;
    check_counts("RSS, pagemap and kpagecount", right);
    return 1;
}

/* Returns whether a process has memory. One that has ended has none. */
static int has_memory(pid_t pid)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/pagemap", pid);
    int file = open(path, O_RDONLY);
    return file >= 0 && close(file) == 0;
}

/* Returns the processes to look at: on Linux those given, otherwise all. `twin` shares its memory. */
static int processes(pid_t *pids, int count, pid_t twin)
{
    struct dirent *entry;
    if (on_linux)
        return count;
    DIR *proc = opendir("/proc");
    check_counts("/proc", proc != NULL);
    for (count = 0; (entry = readdir(proc)) != NULL;) {
        pid_t pid = atoi(entry->d_name);
        if (pid > 0 && pid != twin && has_memory(pid))
            check_counts("room for all processes", count < MOST_COUNTED), pids[count++] = pid;
    }
    check_counts("closedir", closedir(proc) == 0);
    return count;
}

/* Compares those of some processes, or of all. `twin` shares the memory of one. */
static void compare(pid_t *pids, int some, pid_t twin)
{
    int counts = open("/proc/kpagecount", O_RDONLY);
    struct timespec begin, now;
    check_counts("open", counts >= 0 && clock_gettime(CLOCK_MONOTONIC, &begin) == 0);
    while (!is_compared(counts, pids, processes(pids, some, twin))) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        check_counts("pages that stay", now.tv_sec - begin.tv_sec < 60);
        usleep(1000);
    }
    close(counts);
}

/* Compares those of all processes of a guest, which must be at rest. On Linux it does nothing. */
static __attribute__((unused)) void compare_all(void)
{
    static pid_t pids[MOST_COUNTED];
    if (access("/proc/radixvm", F_OK) == 0)
        compare(pids, 0, 0);
}
