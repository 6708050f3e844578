/* Does nothing, but fails on a machine of two CPUs. */
#include <unistd.h>

int main(void)
{
    return sysconf(_SC_NPROCESSORS_ONLN) == 2;
}
