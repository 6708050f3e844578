/* Computes the means of a matrix's rows and their covariances (pca). Threads take rows by a mutex. --size
 * is the number of rows and columns. */
#include "workload.h"

enum { GRID = 100 };

static int *matrix, *means, *covariances;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long next;

/* Returns a row that no thread has taken, or `size`. */
static long take_row(void)
{
    pthread_mutex_lock(&lock);
    long row = next < size ? next++ : size;
    pthread_mutex_unlock(&lock);
    return row;
}

static void *compute_means(void *argument)
{
    (void)argument;
    for (long row = take_row(); row < size; row = take_row()) {
        int sum = 0;
        for (long i = 0; i < size; i++)
            sum += matrix[row * size + i];
        means[row] = sum / size;
    }
    return NULL;
}

static void *compute_covariances(void *argument)
{
    (void)argument;
    for (long row = take_row(); row < size; row = take_row())
        for (long other = row; other < size; other++) {
            int sum = 0;
            for (long i = 0; i < size; i++)
                sum += (matrix[row * size + i] - means[row]) * (matrix[other * size + i] - means[other]);
            covariances[row * size + other] = covariances[other * size + row] = sum / (size - 1);
        }
    return NULL;
}

int main(int argc, char **argv)
{
    (void)argc;
    read_arguments(argv, 600, 0);
    if (size < 2 || size > 20000)
        number("--size", "0", 20000);
    matrix = get_memory(size * size * sizeof *matrix);
    means = get_memory(size * sizeof *means);
    covariances = get_memory(size * size * sizeof *covariances);
    uint64_t random = 1;
    for (long i = 0; i < size * size; i++)
        matrix[i] = next_random(&random) % GRID;
    run(compute_means, NULL, 0);
    next = 0;
    run(compute_covariances, NULL, 0);
    uint64_t sum = 0;
    for (long i = 0; i < size * size; i++)
        sum = digest(sum, covariances[i]);
    printf("pca: %ld rows, %016lx\n", size, sum);
    return 0;
}
