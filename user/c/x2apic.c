/* Prints "x2APIC" if CPUID says that this CPU has one (leaf 1, ECX bit 21), else "xAPIC". */
#include <cpuid.h>
#include <stdio.h>

int main(void)
{
    unsigned eax, ebx, ecx, edx;
    if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx))
        return 1;
    puts(ecx & 1u << 21 ? "x2APIC" : "xAPIC");
    return 0;
}
