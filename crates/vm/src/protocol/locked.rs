//! Operations of all designs on pages whose slots are locked.

use core::ops::Range;

use percore::Pinned;
use radixmap::{Always, Entry, Expand, Never, RadixMap, RangeGuard, Value};
use refcache::Domain;

use super::shootdown::keys;
use crate::machine::lock_slots;
use crate::page_word::Page;
use crate::{Access, FrameNum, HUGE_PAGES, PageNum, PageRange, VmError};

/// The locked slots of a map of pages.
pub type Guard<'g, E = Always> = RangeGuard<'g, Page, E>;

/// `pages`, if they are in user space and not none.
#[inline]
pub fn check(user: PageRange, pages: PageRange) -> Result<PageRange, VmError> {
    match (pages.is_empty(), user.covers(pages)) {
        (true, _) => Err(VmError::Empty),
        (_, false) => Err(VmError::OutOfRange),
        _ => Ok(pages),
    }
}

/// Returns the first part of `pages` that has no more than `slots` slots, as far as `map` knows.
pub fn first_piece<R: Domain>(
    map: &RadixMap<Page, R>,
    pin: &Pinned,
    pages: PageRange,
    user: PageRange,
    slots: u64,
) -> PageRange {
    if pages.pages() <= slots || !user.covers(pages) {
        return pages;
    }
    PageRange::between(pages.start(), PageNum::new(map.extent(pin, keys(pages), slots)))
}

/// Locks `pages`, and more where they lie in folded slots.
pub fn lock_leaves<'g, R: Domain>(
    map: &'g RadixMap<Page, R>,
    pin: &'g Pinned,
    pages: Range<u64>,
) -> Guard<'g, Never> {
    lock_slots(pin);
    map.lock_whole(pin, pages)
}

/// Locks every slot of `map`.
pub fn lock_all<'g, R: Domain>(map: &'g RadixMap<Page, R>, pin: &'g Pinned) -> Guard<'g> {
    lock_slots(pin);
    map.lock_all(pin)
}

/// Sees to it that the locked `keys` can be set to pages like `page`. On failure nothing has changed.
#[inline]
pub fn make_fit(guard: &mut Guard<'_>, keys: Range<u64>, page: Page) -> Result<(), VmError> {
    guard.fit(keys, page).map_err(|_| VmError::OutOfMemory)
}

pub(super) fn for_each_touched(guard: &mut Guard<'_>, mut f: impl FnMut(&mut Entry<'_, Page>, Page)) {
    guard.for_each(|entry| {
        if let Some(page) = entry.value().filter(|page| page.is_touched()) {
            f(entry, page);
        }
    });
}

/// Shows the frame that `access` reaches on the one locked page to `visit`. Returns whether there is one.
pub fn show_frame<E: Expand>(
    guard: &mut Guard<'_, E>,
    access: Access,
    visit: &mut dyn FnMut(FrameNum),
) -> bool {
    let mut shown = false;
    guard.for_each(|entry| {
        let reached = entry.value().filter(|page| page.rights().allows(access));
        let frame = reached.and_then(|page| page.part(entry.keys().start % HUGE_PAGES).frame());
        shown |= frame.map(&mut *visit).is_some();
    });
    shown
}
