//! The data segment: `brk` moves its end.

use sync::SpinLock;
use vm::{AddressSpace, Mapping, PAGE_SIZE, PageNum, PageRange, Placement, Prot, VirtAddr, VmError};

/// From the end of the program's image to the break.
pub struct Heap(SpinLock<Bounds>);

#[derive(Clone, Copy, Debug)]
struct Bounds {
    start: u64,
    end: u64,
}

/// The first page that begins at or after `address`.
fn page_up(address: u64) -> PageNum {
    VirtAddr::new(address.next_multiple_of(PAGE_SIZE)).page()
}

impl Heap {
    /// An empty one at `start`.
    pub fn new(start: u64) -> Self {
        Self(SpinLock::new(Bounds { start, end: start }))
    }

    /// Where it starts and ends.
    pub fn bounds(&self) -> (u64, u64) {
        let bounds = self.0.lock();
        (bounds.start, bounds.end)
    }

    /// One with the same bounds.
    pub fn copy(&self) -> Self {
        Self(SpinLock::new(*self.0.lock()))
    }

    /// Moves the break to `wanted` if that is possible; says where it is then. Never moves below the start,
    /// nor over a mapping.
    pub fn set_break(&self, space: &dyn AddressSpace, wanted: u64) -> u64 {
        let mut bounds = self.0.lock();
        let reachable = wanted >= bounds.start && wanted <= crate::mm::user::USER_END;
        if reachable && resize(space, page_up(bounds.end), page_up(wanted)).is_ok() {
            bounds.end = wanted;
        }
        bounds.end
    }
}

fn resize(space: &dyn AddressSpace, old: PageNum, new: PageNum) -> Result<(), VmError> {
    let pin = percore::pin();
    if new < old {
        space.unmap(&pin, PageRange::between(new, old))
    } else if new > old {
        let pages = new.get() - old.get();
        space
            .map(&pin, Placement::FixedNoReplace(old), pages, Mapping::anonymous(Prot::READ | Prot::WRITE))
            .map(drop)
    } else {
        Ok(())
    }
}
