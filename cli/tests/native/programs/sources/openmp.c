// Loops, tasks, critical sections and nested teams of OpenMP. The sums are of integers, so the order does not
// matter.

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static long fibonacci(int n) {
    if (n < 2) return n;
    long a, b;
#pragma omp task shared(a) if (n > 10)
    a = fibonacci(n - 1);
#pragma omp task shared(b) if (n > 10)
    b = fibonacci(n - 2);
#pragma omp taskwait
    return a + b;
}

static void sort(int *numbers, int *other, int count) {
    if (count < 2) return;
    int half = count / 2;
#pragma omp task if (count > 1000)
    sort(numbers, other, half);
#pragma omp task if (count > 1000)
    sort(numbers + half, other + half, count - half);
#pragma omp taskwait
    for (int i = 0, a = 0, b = half; i < count; i++)
        other[i] = b == count || (a < half && numbers[a] <= numbers[b]) ? numbers[a++] : numbers[b++];
    memcpy(numbers, other, count * sizeof *numbers);
}

int main(void) {
    enum { COUNT = 200000 };
    unsigned *numbers = malloc(COUNT * sizeof *numbers);
    omp_set_dynamic(0);
    omp_set_num_threads(4);

#pragma omp parallel for schedule(static)
    for (unsigned i = 0; i < COUNT; i++) numbers[i] = i * 2654435761u;
    unsigned long sum = 0;
    unsigned most = 0;
#pragma omp parallel for reduction(+ : sum) reduction(max : most) schedule(dynamic, 1000)
    for (int i = 0; i < COUNT; i++) {
        sum += numbers[i];
        most = numbers[i] > most ? numbers[i] : most;
    }
    printf("sum %lu most %u\n", sum, most);

    long result = 0;
#pragma omp parallel
#pragma omp single
    result = fibonacci(20);
    printf("fibonacci %ld\n", result);

    // Each thread allocates what another one frees.
    char *blocks[64] = {0};
    long bytes = 0;
#pragma omp parallel
    {
#pragma omp for
        for (int i = 0; i < 64; i++) memset(blocks[i] = malloc(100000 + i), i, 100000 + i);
#pragma omp for reduction(+ : bytes)
        for (int i = 0; i < 64; i++) {
            for (int k = 0; k < 100000 + 63 - i; k++) bytes += blocks[63 - i][k];
            free(blocks[63 - i]);
        }
    }
    printf("bytes %ld\n", bytes);

    long counted = 0, locked = 0, added = 0;
    omp_lock_t lock;
    omp_init_lock(&lock);
#pragma omp parallel for
    for (int i = 0; i < 3000; i++) {
#pragma omp critical
        counted += i;
        omp_set_lock(&lock);
        locked += i;
        omp_unset_lock(&lock);
#pragma omp atomic
        added += i;
    }
    omp_destroy_lock(&lock);
    printf("critical %ld lock %ld atomic %ld\n", counted, locked, added);

    omp_set_max_active_levels(2);
    long cells[3][3] = {{0}};
    for (int round = 0; round < 5; round++) {
#pragma omp parallel num_threads(3)
        {
            int outer = omp_get_thread_num();
#pragma omp parallel num_threads(3)
            {
                cells[outer][omp_get_thread_num()] += omp_get_ancestor_thread_num(1) + omp_get_team_size(2);
#pragma omp barrier
            }
        }
    }
    for (int i = 0; i < 3; i++) printf("nested %ld %ld %ld\n", cells[i][0], cells[i][1], cells[i][2]);

    int *sorted = malloc(COUNT * sizeof *sorted), *other = malloc(COUNT * sizeof *other);
    for (int i = 0; i < COUNT; i++) sorted[i] = numbers[i] >> 1;
#pragma omp parallel
#pragma omp single
    sort(sorted, other, COUNT);
    int ordered = 1;
#pragma omp parallel for reduction(&& : ordered)
    for (int i = 1; i < COUNT; i++) ordered = ordered && sorted[i - 1] <= sorted[i];
    printf("sorted %d %d %d\n", ordered, sorted[0], sorted[COUNT - 1]);

#pragma omp parallel for ordered schedule(dynamic)
    for (int i = 0; i < 8; i++) {
#pragma omp ordered
        printf("in order %d\n", i);
    }
    free(sorted), free(other), free(numbers);
}
