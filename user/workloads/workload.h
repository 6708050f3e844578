/* Arguments, input and threads of the programs of this folder. They are the workloads of PATHREADS (NPC
 * 2018, table 1), in C with pthreads and malloc as in the benchmark suites that the paper took them from
 * (Phoenix, PARSEC).
 *
 * NAME [--threads N] [--size N], or NAME [--threads N] FILE: prints the result, which does not depend on
 * the number of threads. */
#ifndef WORKLOAD_H
#define WORKLOAD_H

#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_THREADS = 128 };

static int threads = 1;
static long size;
static const char *input_file;

__attribute__((unused, noreturn)) static void die(const char *what)
{
    perror(what);
    exit(1);
}

__attribute__((unused)) static void *get_memory(size_t bytes)
{
    void *memory = malloc(bytes);
    if (!memory)
        die("malloc");
    return memory;
}

static long number(const char *option, const char *word, long most)
{
    char *end = NULL;
    long value = word ? strtol(word, &end, 10) : 0;
    if (value < 1 || value > most || *end) {
        fprintf(stderr, "%s needs a number from 1 to %ld\n", option, most);
        exit(2);
    }
    return value;
}

/* Reads the arguments. `usual` is the size if none is given. */
__attribute__((unused)) static void read_arguments(char **words, long usual, int needs_file)
{
    size = usual;
    for (int i = 1; words[i]; i++) {
        if (!strcmp(words[i], "--threads")) {
            threads = number("--threads", words[++i], MOST_THREADS);
        } else if (!strcmp(words[i], "--size") && !needs_file) {
            size = number("--size", words[++i], 1000000000);
        } else if (needs_file && words[i][0] != '-') {
            input_file = words[i];
            continue;
        } else {
            fprintf(stderr, "usage: %s [--threads N] %s\n", words[0], needs_file ? "FILE" : "[--size N]");
            exit(2);
        }
        if (!words[i])
            break;
    }
    if (needs_file && !input_file) {
        fprintf(stderr, "%s needs a file\n", words[0]);
        exit(2);
    }
}

/* Maps the input file privately, as Phoenix does. */
__attribute__((unused)) static unsigned char *map_input(long *length)
{
    struct stat about;
    int file = open(input_file, O_RDONLY);
    if (file < 0 || fstat(file, &about))
        die(input_file);
    void *memory = mmap(NULL, about.st_size, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    if (memory == MAP_FAILED)
        die("mmap");
    close(file);
    *length = about.st_size;
    return memory;
}

/* Runs `body` in all threads, each with its element of an array, and waits for them. */
__attribute__((unused)) static void run(void *(*body)(void *), void *elements, size_t bytes)
{
    pthread_t made[MOST_THREADS];
    for (int i = 0; i < threads; i++)
        if (pthread_create(&made[i], NULL, body, (char *)elements + i * bytes))
            die("pthread_create");
    for (int i = 0; i < threads; i++)
        pthread_join(made[i], NULL);
}

/* Runs `body` in all threads, each with the address of its number, a `long`, and waits for them. */
__attribute__((unused)) static void run_numbered(void *(*body)(void *))
{
    long numbers[MOST_THREADS];
    for (int i = 0; i < threads; i++)
        numbers[i] = i;
    run(body, numbers, sizeof *numbers);
}

/* Returns where the part of a thread begins, of `all`. The part of the next one begins where it ends. */
__attribute__((unused)) static long part(long all, long thread)
{
    return all * thread / threads;
}

/* A generator of random numbers (splitmix64). */
__attribute__((unused)) static uint64_t next_random(uint64_t *state)
{
    uint64_t value = *state += 0x9e3779b97f4a7c15;
    value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9;
    value = (value ^ value >> 27) * 0x94d049bb133111eb;
    return value ^ value >> 31;
}

/* Returns a random number from 0 to 1. */
__attribute__((unused)) static double next_fraction(uint64_t *state)
{
    return (double)(next_random(state) >> 11) / (double)(1ULL << 53);
}

/* Mixes a word into a digest. */
__attribute__((unused)) static uint64_t digest(uint64_t sum, uint64_t word)
{
    sum ^= word;
    return next_random(&sum);
}

#endif
