/* Threads write a word of 2, 4 or 8 bytes of a file by calls, all ones or all zeroes, and others read it, by
 * calls and by a mapping. A word is read as it was written, never a part of one value and a part of another.
 *
 * wholewords ROUNDS */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { THREADS = 4, PLACE = 4088 };

static int fd;
static long rounds;
static size_t bytes;
static unsigned char *mapped;

static void must(int good, const char *what)
{
    if (!good) {
        dprintf(1, "wholewords: %s of %zu bytes\n", what, bytes);
        _exit(1);
    }
}

static void *write_words(void *argument)
{
    uint64_t value = (uintptr_t)argument & 1 ? UINT64_MAX : 0;
    for (long round = 0; round < rounds; round++)
        must(pwrite(fd, &value, bytes, PLACE) == (ssize_t)bytes, "pwrite");
    return NULL;
}

static uint64_t mapped_word(void)
{
    switch (bytes) {
    case 2: return *(volatile uint16_t *)(mapped + PLACE);
    case 4: return *(volatile uint32_t *)(mapped + PLACE);
    default: return *(volatile uint64_t *)(mapped + PLACE);
    }
}

static void *read_words(void *unused)
{
    uint64_t all = bytes == 8 ? UINT64_MAX : (1UL << 8 * bytes) - 1;
    for (long round = 0; round < rounds; round++) {
        uint64_t word = 0, seen = mapped_word();
        must(pread(fd, &word, bytes, PLACE) == (ssize_t)bytes, "pread");
        must(word == 0 || word == all, "a word read in part,");
        must(seen == 0 || seen == all, "a mapped word written in part,");
    }
    return unused;
}

int main(int argc, char **argv)
{
    rounds = argc == 2 ? atol(argv[1]) : 0;
    must(rounds > 0, "wholewords ROUNDS");
    fd = memfd_create("words", 0);
    mapped = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
    must(fd >= 0 && mapped != MAP_FAILED, "begin");
    for (bytes = 2; bytes <= 8; bytes *= 2) {
        pthread_t thread[THREADS];
        must(ftruncate(fd, 0) == 0 && ftruncate(fd, 4096) == 0, "ftruncate");
        for (long i = 0; i < THREADS; i++)
            must(pthread_create(&thread[i], NULL, i < 2 ? write_words : read_words, (void *)i) == 0, "create");
        for (long i = 0; i < THREADS; i++)
            must(pthread_join(thread[i], NULL) == 0, "join");
    }
    puts("wholewords: done");
    return 0;
}
