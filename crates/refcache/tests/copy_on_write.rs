//! The use of sole holders: real threads share pages by fork and copy them when they write. A page that is
//! written in place while another space still reads it shows a number from that other space.
#![cfg(not(loom))]

use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};

use percore::{Pinned, threads};
use refcache::{Config, Header, Refcache};

const THREADS: usize = 4;
const SPACES: usize = 6;
const ROUNDS: u64 = if cfg!(miri) { 200 } else { 200_000 };

/// A counted page. Its holders may read the content, and a sole holder may write it.
#[repr(C)]
struct Page {
    header: Header,
    content: Cell<u64>,
    /// Whether the page ever had two holders.
    forked: AtomicBool,
}

/// A space of one page, to which it holds a reference, and the number that its program wrote there last.
struct Space {
    page: NonNull<Page>,
    written: u64,
}

// SAFETY: pages are made to be shared. Their content is written by sole holders only, which is the subject of
// the test.
unsafe impl Send for Space {}

static SPACE: [Mutex<Option<Space>>; SPACES] = [const { Mutex::new(None) }; SPACES];
static DOMAIN: OnceLock<Refcache> = OnceLock::new();
static MADE: AtomicUsize = AtomicUsize::new(0);
static FREED: AtomicUsize = AtomicUsize::new(0);
/// Number of times that the last holder wrote a page in place that had been shared.
static REUSED: AtomicUsize = AtomicUsize::new(0);

fn domain() -> &'static Refcache {
    DOMAIN.get_or_init(|| Refcache::new(Config { cores: 2 * THREADS, cache_slots: 4, review_budget: 5 }))
}

fn space(at: usize) -> MutexGuard<'static, Option<Space>> {
    SPACE[at].lock().unwrap()
}

unsafe fn free(_: &Refcache, _: &Pinned, header: NonNull<Header>) {
    // SAFETY: no space holds the page, which was made by `Space::new`.
    drop(unsafe { Box::from_raw(header.cast::<Page>().as_ptr()) });
    FREED.fetch_add(1, Ordering::Relaxed);
}

impl Space {
    fn new(content: u64) -> Self {
        MADE.fetch_add(1, Ordering::Relaxed);
        let page = Page {
            header: Header::with_sole(1, free),
            content: Cell::new(content),
            forked: AtomicBool::new(false),
        };
        Self { page: NonNull::from(Box::leak(Box::new(page))), written: content }
    }

    fn page(&self) -> &Page {
        // SAFETY: this space has a reference to it.
        unsafe { self.page.as_ref() }
    }

    fn check(&self) {
        assert_eq!(self.page().content.get(), self.written, "another space's write is seen");
    }

    fn fork(&self) -> Self {
        self.page().forked.store(true, Ordering::Relaxed);
        // SAFETY: this space has a reference, and the new one is the child's.
        unsafe { domain().add_references(&percore::pin(), self.page.cast(), 1) };
        Self { ..*self }
    }

    fn write(&mut self, number: u64) {
        if self.page().header.is_sole() {
            REUSED.fetch_add(self.page().forked.load(Ordering::Relaxed).into(), Ordering::Relaxed);
            self.page().content.set(number);
            self.written = number;
        } else {
            std::mem::replace(self, Self::new(number)).exit();
        }
    }

    fn exit(self) {
        self.check();
        // SAFETY: drops the space's reference.
        unsafe { domain().adjust(&percore::pin(), self.page.cast(), -1) }
    }
}

fn one_round(number: u64) {
    let dice = (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize;
    let at = dice % SPACES;
    match dice / SPACES % 8 {
        0 => fork(at, (at + 1) % SPACES),
        1 => space(at).take().into_iter().for_each(Space::exit),
        2..=4 => space(at).get_or_insert_with(|| Space::new(number)).write(number),
        5 => space(at).iter().for_each(Space::check),
        6 if number.is_multiple_of(16) => rest(),
        _ => drop(domain().tick(&percore::pin())),
    }
}

fn fork(from: usize, to: usize) {
    let child = space(from).as_ref().map(Space::fork);
    let old = std::mem::replace(&mut *space(to), child);
    old.into_iter().for_each(Space::exit);
}

fn rest() {
    domain().offline(&percore::pin());
    std::thread::yield_now();
    domain().online(&percore::pin());
}

fn play(thread: u64) {
    let _core = threads::enter_any(2 * THREADS);
    domain().online(&percore::pin());
    (0..ROUNDS).for_each(|round| one_round(round * THREADS as u64 + thread));
    domain().offline(&percore::pin());
}

/// When nothing else runs, a page that was shared is not copied for ever.
fn the_last_of_a_family() {
    let mut parent = Space::new(1);
    parent.fork().exit();
    domain().drain(&percore::pin());
    let reused = REUSED.load(Ordering::Relaxed);
    parent.write(2);
    assert_eq!(REUSED.load(Ordering::Relaxed), reused + 1);
    parent.exit();
}

#[test]
fn no_space_sees_another_s_writes() {
    std::thread::scope(|scope| {
        (0..THREADS as u64).for_each(|thread| drop(scope.spawn(move || play(thread))))
    });
    let _core = threads::enter_any(2 * THREADS);
    domain().online(&percore::pin());
    (0..SPACES).for_each(|at| space(at).take().into_iter().for_each(Space::exit));
    the_last_of_a_family();
    domain().drain(&percore::pin());
    assert_eq!(FREED.load(Ordering::Relaxed), MADE.load(Ordering::Relaxed));
}
