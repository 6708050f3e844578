//! mmap and its family with edge arguments.

use crate::cases::{AT, Cases};
use crate::fixture::{ANON, Fixture, NOWHERE, RW};
use libc::*;
use programs::memory::PAGE;

const FIXED: usize = ANON | MAP_FIXED as usize;
const NOREPLACE: usize = ANON | MAP_FIXED_NOREPLACE as usize;
const PRIVATE: usize = MAP_PRIVATE as usize;
const SHARED: usize = MAP_SHARED as usize;
const READ: usize = PROT_READ as usize;
const NONE: usize = PROT_NONE as usize;
const TIB: usize = 1 << 40;

/// Adds the cases.
pub fn add(cases: &mut Cases, fixture: &Fixture) {
    mmap(cases, fixture);
    mmap_file(cases, fixture);
    munmap(cases, fixture);
    mprotect(cases, fixture);
    madvise(cases, fixture);
    others(cases, fixture);
}

fn mmap(cases: &mut Cases, f: &Fixture) {
    let mut fails = |name: &str, address: usize, length: usize, flags: usize, error| {
        cases.fails(&format!("mmap {name}"), SYS_mmap, &[address, length, RW, flags, NOWHERE, 0], error);
    };
    fails("of length 0", 0, 0, ANON, EINVAL);
    fails("of all addresses", 0, usize::MAX, ANON, ENOMEM);
    fails("of half of all addresses", 0, 1 << 63, ANON, ENOMEM);
    fails("of all of user space", 0, f.top, ANON, ENOMEM);
    fails("of one page more than user space", 0, f.top + PAGE, ANON, ENOMEM);
    fails("fixed, unaligned", f.page + 1, PAGE, FIXED, EINVAL);
    fails("fixed, length 0", f.page, 0, FIXED, EINVAL);
    fails("fixed, at the last page below the top", f.top - PAGE, PAGE, FIXED, ENOMEM);
    fails("fixed, at the top", f.top, PAGE, FIXED, ENOMEM);
    fails("fixed, across the top", f.top - 4 * PAGE, 8 * PAGE, FIXED, ENOMEM);
    fails("fixed, non-canonical", 1 << 60, PAGE, FIXED, ENOMEM);
    fails("fixed, in the kernel", 0xffff_8000_0000_0000, PAGE, FIXED, ENOMEM);
    fails("fixed, in the last page of all", usize::MAX - PAGE + 1, PAGE, FIXED, ENOMEM);
    fails("fixed, wrapping around", f.page, usize::MAX - f.page, FIXED, ENOMEM);
    fails("fixed, not replacing, taken", f.page, PAGE, NOREPLACE, EEXIST);
    fails("fixed, not replacing, partly taken", f.page, 2 * PAGE, NOREPLACE, EEXIST);
    fails("neither private nor shared", 0, PAGE, MAP_ANONYMOUS as usize, EINVAL);
    fails("of an unknown kind", 0, PAGE, MAP_ANONYMOUS as usize | 0xf, EINVAL);
    let at_null = [0, PAGE, RW, FIXED, NOWHERE, 0];
    cases.gives("mmap fixed, at null", SYS_mmap, &at_null, &[Ok(0), Err(EPERM)]);
    cases.works("munmap of null", SYS_munmap, &[0, PAGE]);
    cases.fails("mmap with an odd offset", SYS_mmap, &[0, PAGE, RW, ANON, NOWHERE, 1], EINVAL);
    cases.works("mmap with a hint in the kernel", SYS_mmap, &[1 << 63, PAGE, RW, ANON, NOWHERE, 0]);
    cases.works("mmap with an odd hint", SYS_mmap, &[f.page + 5, PAGE, RW, ANON, NOWHERE, 0]);
    cases.works("mmap of an odd length", SYS_mmap, &[0, 1, RW, ANON, NOWHERE, 0]);
}

fn mmap_file(cases: &mut Cases, f: &Fixture) {
    let mut fails = |name: &str, protection, flags, descriptor, error| {
        cases.fails(&format!("mmap {name}"), SYS_mmap, &[0, PAGE, protection, flags, descriptor, 0], error);
    };
    fails("of no file", RW, PRIVATE, NOWHERE, EBADF);
    fails("of a descriptor never opened", RW, PRIVATE, 1 << 20, EBADF);
    fails("of a place", READ, PRIVATE, f.place, EBADF);
    fails("of a pipe", READ, PRIVATE, f.pipe[0], ENODEV);
    fails("of a directory", READ, PRIVATE, f.directory, ENODEV);
    fails("of a file not open to be read", READ, PRIVATE, f.file_write, EACCES);
    fails("writable and shared of a file not open to be written", RW, SHARED, f.file_read, EACCES);
    cases.fails("mmap of no file, length 0", SYS_mmap, &[0, 0, READ, PRIVATE, NOWHERE, 0], EBADF);
    for offset in [1 << 63, NOWHERE & !(PAGE - 1), (1 << 63) - PAGE] {
        let args = [0, PAGE, READ, PRIVATE, f.file, offset];
        cases.fails(&format!("mmap of a file at {offset:#x}"), SYS_mmap, &args, EOVERFLOW);
    }
    cases.fails("mmap of a file, length 0", SYS_mmap, &[0, 0, READ, PRIVATE, f.file, 0], EINVAL);
    cases.fails("mmap of a file, odd offset", SYS_mmap, &[0, PAGE, READ, PRIVATE, f.file, 12], EINVAL);
    cases.works("mmap of a file", SYS_mmap, &[0, PAGE, RW, PRIVATE, f.file_read, 0]);
}

fn munmap(cases: &mut Cases, f: &Fixture) {
    let mut fails = |name: &str, address: usize, length: usize| {
        cases.fails(&format!("munmap {name}"), SYS_munmap, &[address, length], EINVAL);
    };
    fails("of length 0", f.page, 0);
    fails("unaligned", f.page + 8, PAGE);
    fails("of all addresses", 0, usize::MAX);
    fails("wrapping around", f.page, usize::MAX - f.page + 1);
    fails("at the top", f.top, PAGE);
    fails("of the last page below the top", f.top - PAGE, PAGE);
    fails("across the top", f.page, f.top);
    fails("non-canonical", 1 << 60, PAGE);
    fails("of everything above user space", f.top, 0usize.wrapping_sub(f.top));
    fails("of the kernel", 0xffff_8000_0000_0000, TIB);
    fails("of the last page of all", usize::MAX - PAGE + 1, PAGE);
    cases.works("munmap of a hole", SYS_munmap, &[f.hole, PAGE]);
    cases.works("munmap of a hole, odd length", SYS_munmap, &[f.hole, 1]);
}

fn mprotect(cases: &mut Cases, f: &Fixture) {
    let mut fails = |name: &str, address: usize, length: usize, protection: usize, error| {
        cases.fails(&format!("mprotect {name}"), SYS_mprotect, &[address, length, protection], error);
    };
    fails("unaligned", f.page + 8, PAGE, RW, EINVAL);
    fails("with unknown bits", f.page, PAGE, 0xff00, EINVAL);
    fails("growing both ways", f.page, PAGE, RW | 0x0300_0000, EINVAL);
    fails("of a hole", f.hole, PAGE, RW, ENOMEM);
    fails("of mapped pages and a hole", f.page, 2 * PAGE, RW, ENOMEM);
    fails("of all addresses from here", f.page, usize::MAX, RW, ENOMEM);
    fails("of the kernel", 0xffff_8000_0000_0000, PAGE, RW, ENOMEM);
    fails("non-canonical", 1 << 60, PAGE, NONE, ENOMEM);
    fails("at the top", f.top, PAGE, RW, ENOMEM);
    let (above, dont_touch) = (f.top - f.page + PAGE, "mprotect of a page and all above it");
    cases.fails(dont_touch, SYS_mprotect, &[f.page, above, NONE], ENOMEM);
    cases.fails("read into the page before the hole", SYS_read, &[f.zero, f.page, 8], EFAULT);
    cases.fails("mprotect of a page and a hole, back", SYS_mprotect, &[f.page, 2 * PAGE, RW], ENOMEM);
    cases.gives("read into the page before the hole, again", SYS_read, &[f.zero, f.page, 8], &[Ok(8)]);
    cases.works("mprotect of length 0", SYS_mprotect, &[f.page, 0, NONE]);
    cases.works("mprotect of an odd length", SYS_mprotect, &[f.page, 1, RW]);
}

fn madvise(cases: &mut Cases, f: &Fixture) {
    let dont_need = MADV_DONTNEED as usize;
    let mut fails = |name: &str, address: usize, length: usize, advice: usize, error| {
        cases.fails(&format!("madvise {name}"), SYS_madvise, &[address, length, advice], error);
    };
    fails("unaligned", f.page + 8, PAGE, dont_need, EINVAL);
    fails("unknown", f.page, PAGE, 12345, EINVAL);
    fails("negative", f.page, PAGE, usize::MAX, EINVAL);
    fails("about all addresses", f.page, usize::MAX, dont_need, EINVAL);
    fails("wrapping around", f.page, usize::MAX - PAGE + 1, dont_need, EINVAL);
    fails("about a hole", f.hole, PAGE, dont_need, ENOMEM);
    fails("about the kernel", 0xffff_8000_0000_0000, PAGE, dont_need, ENOMEM);
    fails("about non-canonical addresses", 1 << 60, PAGE, dont_need, ENOMEM);
    for (kind, advice) in [("reading", MADV_POPULATE_READ), ("writing", MADV_POPULATE_WRITE)] {
        let advice = advice as usize;
        fails(&format!("to populate a hole for {kind}"), f.hole, PAGE, advice, ENOMEM);
        fails(&format!("to populate a page and a hole for {kind}"), f.page, 2 * PAGE, advice, ENOMEM);
        fails(&format!("to populate a page without access for {kind}"), f.no_access, PAGE, advice, EINVAL);
    }
    fails(
        "to populate a read-only page for writing",
        f.read_only,
        PAGE,
        MADV_POPULATE_WRITE as usize,
        EINVAL,
    );
    for advice in [MADV_POPULATE_READ, MADV_POPULATE_WRITE, MADV_WIPEONFORK, MADV_KEEPONFORK] {
        cases.works(&format!("madvise {advice}"), SYS_madvise, &[f.page, PAGE, advice as usize]);
    }
    cases.works("madvise about length 0", SYS_madvise, &[f.page, 0, dont_need]);
    cases.works("madvise about a read-only page", SYS_madvise, &[f.read_only, PAGE, dont_need]);
}

fn others(cases: &mut Cases, f: &Fixture) {
    let may_move = MREMAP_MAYMOVE as usize;
    cases.fails("mremap unaligned", SYS_mremap, &[f.page + 8, PAGE, PAGE, 0], EINVAL);
    cases.fails("mremap to length 0", SYS_mremap, &[f.page, PAGE, 0, may_move], EINVAL);
    cases.fails("mremap with unknown flags", SYS_mremap, &[f.page, PAGE, PAGE, 0xff00], EINVAL);
    for (name, flag) in [("to a place", MREMAP_FIXED), ("leaving the old place", MREMAP_DONTUNMAP)] {
        let args = [f.page, PAGE, PAGE, flag as usize, f.read_only];
        cases.fails(&format!("mremap {name} without moving"), SYS_mremap, &args, EINVAL);
    }
    cases.fails("mremap of a hole", SYS_mremap, &[f.hole, PAGE, 2 * PAGE, may_move], EFAULT);
    cases.fails("mremap into a neighbour", SYS_mremap, &[f.read_only, PAGE, 2 * PAGE, 0], ENOMEM);
    cases.writes_unless_null("mincore", SYS_mincore, &[f.page, PAGE, AT]);
    cases.fails("mincore unaligned", SYS_mincore, &[f.page + 8, PAGE, f.page], EINVAL);
    cases.fails("mincore of a hole", SYS_mincore, &[f.hole, PAGE, f.page], ENOMEM);
    cases.fails("mlockall of nothing, on fault", SYS_mlockall, &[MCL_ONFAULT as usize], EINVAL);
    cases.fails("msync unaligned", SYS_msync, &[f.page + 8, PAGE, MS_SYNC as usize], EINVAL);
    cases.fails("msync both ways", SYS_msync, &[f.page, PAGE, (MS_SYNC | MS_ASYNC) as usize], EINVAL);
    cases.fails("msync of a hole", SYS_msync, &[f.hole, PAGE, MS_SYNC as usize], ENOMEM);
}
