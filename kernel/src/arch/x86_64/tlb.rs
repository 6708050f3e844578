//! This core's TLB.

use super::cpu;

/// Beyond this number of pages, one reload of CR3 is cheaper than a flush for each.
pub const MOST_SINGLE: usize = 32;

/// Flushes pages one by one while their entries are cleared, until they are too many.
pub struct Flusher {
    in_use: bool,
    count: usize,
}

impl Flusher {
    /// Creates a flusher for tables that this core runs on (`in_use`), or of which its TLB has no
    /// translation.
    #[inline(always)]
    pub fn new(in_use: bool) -> Self {
        Self { in_use, count: 0 }
    }

    /// Flushes page number `page`, whose entry was cleared, or counts it if there are many.
    #[inline(always)]
    pub fn cleared(&mut self, page: u64) {
        self.count += 1;
        if self.in_use && self.count <= MOST_SINGLE {
            cpu::flush_page(page << 12);
        }
    }

    /// Notes that an entry was cleared through which many pages were reached.
    pub fn cleared_many(&mut self) {
        self.count += MOST_SINGLE + 1;
    }

    /// Flushes the whole TLB if too many pages were cleared to flush each.
    #[inline(always)]
    pub fn finish(self) {
        if self.in_use && self.count > MOST_SINGLE {
            flush_user();
        }
    }
}

/// Flushes every translation of the user pages of the tables that this core runs on.
pub fn flush_user() {
    // SAFETY: the same tables. User translations are not global, so all of them are flushed.
    unsafe { cpu::set_cr3(cpu::cr3()) };
}
