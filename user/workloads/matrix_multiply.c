/* Multiplies two square matrices of whole numbers (mm). --size is the number of rows. */
#include "workload.h"

static int *left, *right, *product;

static void *multiply(void *argument)
{
    long thread = *(long *)argument;
    for (long row = part(size, thread); row < part(size, thread + 1); row++)
        for (long k = 0; k < size; k++)
            for (long column = 0; column < size; column++)
                product[row * size + column] += left[row * size + k] * right[k * size + column];
    return NULL;
}

int main(int argc, char **argv)
{
    (void)argc;
    read_arguments(argv, 1000, 0);
    if (size > 20000)
        number("--size", "0", 20000);
    left = get_memory(size * size * sizeof *left);
    right = get_memory(size * size * sizeof *right);
    product = calloc(size * size, sizeof *product);
    if (!product)
        die("calloc");
    uint64_t random = 1;
    for (long i = 0; i < size * size; i++) {
        left[i] = next_random(&random) % 11;
        right[i] = next_random(&random) % 11;
    }
    run_numbered(multiply);
    uint64_t sum = 0;
    for (long i = 0; i < size * size; i++)
        sum = digest(sum, product[i]);
    printf("matrix_multiply: %ld rows, %016lx\n", size, sum);
    return 0;
}
