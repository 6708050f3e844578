//! Programs that make many system calls in many ways.

use super::compare;

/// Three processes for each stressor do a bounded number of operations and check them (`--verify`). The one
/// for threads also tries `setns` with a wrong descriptor. It fails in all ways, and with `--isolate` that is
/// said, which is left out. So is what newer ones say of the runtime's own pages, which stay when they are
/// unmapped. Two stressors are not among them: as root that of `madvise` tells Linux that
/// memory is broken, and that of `mutex` fails now and then because a thread ends before its maker looks.
#[test]
fn stress_ng() {
    let line = r#"
for what in pthread:400 vm:4000 mmap:20 mremap:50 futex:2000 malloc:5000 mprotect:1000 \
    switch:2000 sigsegv:500 qsort:5 brk:2000 fork:50 vfork:200 poll:200 membarrier:20 atomic:50 munmap:2 \
    mincore:300 shm:5 msync:500 bad-altstack:30; do
    name=${what%:*}
    stress-ng --no-rand-seed --quiet --verify --pthread-max 20 --vm-bytes 8M --mmap-bytes 8M \
        --mremap-bytes 8M --$name 3 --$name-ops ${what#*:} > said 2>&1 && status=0 || status=$?
    echo $name $status
    sed -e '/^pathreads: --isolate cannot do this: setns$/d' -e '/ unmapped page 0x70[0-9a-f]* still resident/d' said
done
"#;
    compare("stress-ng", line);
}
