/* Computes the prices of European options by the formula of Black and Scholes, a hundred times (black).
 * --size is the number of options. */
#include <math.h>

#include "workload.h"

enum { ROUNDS = 100 };

struct option {
    double spot, strike, rate, volatility, years;
    int is_put;
};

static struct option *options;
static double *prices;

static double normal(double x)
{
    return erfc(-x / sqrt(2)) / 2;
}

static double price(const struct option *o)
{
    double spread = o->volatility * sqrt(o->years);
    double up = (log(o->spot / o->strike) + (o->rate + o->volatility * o->volatility / 2) * o->years) / spread;
    double down = up - spread, later = o->strike * exp(-o->rate * o->years);
    return o->is_put ? later * normal(-down) - o->spot * normal(-up) : o->spot * normal(up) - later * normal(down);
}

static void *compute(void *argument)
{
    long thread = *(long *)argument;
    for (int round = 0; round < ROUNDS; round++)
        for (long i = part(size, thread); i < part(size, thread + 1); i++)
            prices[i] = price(&options[i]);
    return NULL;
}

int main(int argc, char **argv)
{
    (void)argc;
    read_arguments(argv, 20000, 0);
    options = get_memory(size * sizeof *options);
    prices = get_memory(size * sizeof *prices);
    uint64_t random = 1;
    for (long i = 0; i < size; i++)
        options[i] = (struct option){
            .spot = 50 + 100 * next_fraction(&random), .strike = 50 + 100 * next_fraction(&random),
            .rate = 0.01 + 0.09 * next_fraction(&random), .volatility = 0.1 + 0.5 * next_fraction(&random),
            .years = 0.1 + next_fraction(&random), .is_put = next_random(&random) & 1,
        };
    run_numbered(compute);
    double sum = 0;
    for (long i = 0; i < size; i++)
        sum += prices[i];
    printf("blackscholes: %ld options, mean %.6f\n", size, sum / size);
    return 0;
}
