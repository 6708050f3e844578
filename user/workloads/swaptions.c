/* Prices swaptions by simulated paths of forward rates (swap), after Heath, Jarrow and Morton with one
 * factor. As in PARSEC, each trial takes its rows from malloc. --size is the number of trials of each
 * swaption. */
#include <math.h>

#include "workload.h"

enum { STEPS = 20, SWAPTIONS = 64 };

struct swaption {
    double strike, volatility;
    double price, error;
};

static struct swaption swaptions[SWAPTIONS];

/* Returns a normally distributed number, by the method of Box and Muller. */
static double next_normal(uint64_t *random)
{
    double radius = sqrt(-2 * log(1 - next_fraction(random)));
    return radius * cos(2 * 3.14159265358979 * next_fraction(random));
}

/* Simulates one path of forward rates, and returns the payment, discounted to today. */
static double simulate(const struct swaption *swaption, uint64_t *random)
{
    const double step = 0.25, drift = swaption->volatility * swaption->volatility * step;
    double **path = get_memory(STEPS * sizeof *path);
    for (int time = 0; time < STEPS; time++) {
        path[time] = get_memory(STEPS * sizeof **path);
        double shock = time ? next_normal(random) * sqrt(step) : 0;
        for (int ahead = 0; ahead < STEPS; ahead++) {
            double before = time == 0 ? 0.04 : path[time - 1][ahead + 1 < STEPS ? ahead + 1 : ahead];
            path[time][ahead] = before + (time ? drift * (ahead + 1) * step + swaption->volatility * shock : 0);
        }
    }
    double discount = 1;
    for (int time = 0; time < STEPS / 2; time++)
        discount *= exp(-path[time][0] * step);
    double worth = 1, payments = 0;
    for (int ahead = 0; ahead < STEPS; ahead++) {
        worth *= exp(-path[STEPS / 2][ahead] * step);
        payments += swaption->strike * step * worth;
    }
    for (int time = 0; time < STEPS; time++)
        free(path[time]);
    free(path);
    double value = 1 - worth - payments;
    return value > 0 ? value * discount : 0;
}

static void *work(void *argument)
{
    long thread = *(long *)argument;
    for (long i = part(SWAPTIONS, thread); i < part(SWAPTIONS, thread + 1); i++) {
        uint64_t random = i + 1;
        double sum = 0, squares = 0;
        for (int trial = 0; trial < size; trial++) {
            double value = simulate(&swaptions[i], &random);
            sum += value;
            squares += value * value;
        }
        swaptions[i].price = sum / size;
        swaptions[i].error = sqrt((squares - sum * sum / size) / size / size);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    (void)argc;
    read_arguments(argv, 500, 0);
    uint64_t random = 1;
    for (int i = 0; i < SWAPTIONS; i++) {
        swaptions[i].strike = 0.03 + 0.02 * next_fraction(&random);
        swaptions[i].volatility = 0.005 + 0.01 * next_fraction(&random);
    }
    run_numbered(work);
    double prices = 0, errors = 0;
    for (int i = 0; i < SWAPTIONS; i++) {
        prices += swaptions[i].price;
        errors += swaptions[i].error;
    }
    printf("swaptions: %ld trials, mean %.9f, error %.9f\n", size, prices / SWAPTIONS, errors / SWAPTIONS);
    return 0;
}
