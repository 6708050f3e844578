//! mmap and its family.

use crate::constants;

constants! { u64:
    PROT_NONE = 0, "No access.";
    PROT_READ = 1, "May be read.";
    PROT_WRITE = 2, "May be written.";
    PROT_EXEC = 4, "May be executed.";
    PROT_SEM = 8, "Ignored.";
    PROT_GROWSDOWN = 0x0100_0000, "mprotect: down to the start of a growing mapping.";
    PROT_GROWSUP = 0x0200_0000, "mprotect: up to the end of a growing mapping.";

    MAP_SHARED = 0x01, "Writes are seen by all who map it.";
    MAP_PRIVATE = 0x02, "Writes stay with the process.";
    MAP_SHARED_VALIDATE = 0x03, "MAP_SHARED that refuses unknown flags.";
    MAP_TYPE = 0x0f, "The bits that hold the type.";
    MAP_FIXED = 0x10, "Exactly there, replacing what is there.";
    MAP_ANONYMOUS = 0x20, "No file.";
    MAP_32BIT = 0x40, "In the first 2 GiB.";
    MAP_GROWSDOWN = 0x0100, "A stack.";
    MAP_DENYWRITE = 0x0800, "Ignored.";
    MAP_EXECUTABLE = 0x1000, "Ignored.";
    MAP_LOCKED = 0x2000, "Lock the pages.";
    MAP_NORESERVE = 0x4000, "Reserve no swap.";
    MAP_POPULATE = 0x8000, "Fault the pages in now.";
    MAP_NONBLOCK = 0x1_0000, "Do not wait while populating.";
    MAP_STACK = 0x2_0000, "For a thread's stack.";
    MAP_HUGETLB = 0x4_0000, "Huge pages from the pool.";
    MAP_HUGE_SHIFT = 26, "Where the logarithm of a huge page's size is, or 0.";
    MAP_HUGE_MASK = 0x3f, "Its bits, shifted.";
    MAP_SYNC = 0x8_0000, "Synchronous faults of a persistent file.";
    MAP_FIXED_NOREPLACE = 0x10_0000, "Exactly there, or fail.";

    MREMAP_MAYMOVE = 1, "The mapping may move.";
    MREMAP_FIXED = 2, "The mapping must move to the given address.";
    MREMAP_DONTUNMAP = 4, "Leave the old range mapped and empty.";

    MADV_NORMAL = 0, "No advice.";
    MADV_RANDOM = 1, "Random access ahead.";
    MADV_SEQUENTIAL = 2, "Sequential access ahead.";
    MADV_WILLNEED = 3, "Needed soon.";
    MADV_DONTNEED = 4, "Drop the pages now.";
    MADV_FREE = 8, "The pages may be dropped.";
    MADV_REMOVE = 9, "Punch a hole.";
    MADV_DONTFORK = 10, "Not for children.";
    MADV_DOFORK = 11, "For children again.";
    MADV_MERGEABLE = 12, "May be merged with equal pages.";
    MADV_UNMERGEABLE = 13, "May not be merged.";
    MADV_HUGEPAGE = 14, "Huge pages are welcome.";
    MADV_NOHUGEPAGE = 15, "No huge pages.";
    MADV_DONTDUMP = 16, "Leave out of core dumps.";
    MADV_DODUMP = 17, "Put into core dumps.";
    MADV_WIPEONFORK = 18, "Zero in children.";
    MADV_KEEPONFORK = 19, "Keep in children.";
    MADV_COLD = 20, "Not needed soon.";
    MADV_PAGEOUT = 21, "Reclaim.";
    MADV_POPULATE_READ = 22, "Fault in for reading.";
    MADV_POPULATE_WRITE = 23, "Fault in for writing.";
    MADV_DONTNEED_LOCKED = 24, "Drop the pages now, locked or not.";
    MADV_COLLAPSE = 25, "Make huge pages now.";
    MADV_COUNT_READS = 0x5256_0001, "Ours: count reads of the file here (LODIC).";

    MCL_CURRENT = 1, "mlockall: what is mapped.";
    MCL_FUTURE = 2, "mlockall: what will be mapped.";
    MCL_ONFAULT = 4, "mlockall: once it is touched.";

    MS_ASYNC = 1, "msync: soon.";
    MS_INVALIDATE = 2, "msync: drop other copies.";
    MS_SYNC = 4, "msync: now.";

    MEMBARRIER_CMD_QUERY = 0, "membarrier: which commands there are.";
}
