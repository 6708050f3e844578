//! Model of `presence.rs`: an initiator that removes pages against a core that comes, goes and comes again.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering::*};
use loom::thread;
use test_memory::Watched;
use vm::{PageNum, PageRange, Presence};

use crate::check;

/// One core's table, which knows one page.
struct Core {
    presence: Presence,
    translated: AtomicBool,
}

impl Core {
    fn new() -> Self {
        Self { presence: Presence::new(), translated: AtomicBool::new(true) }
    }

    fn enter(&self) {
        if self.presence.enter().is_some() {
            self.translated.store(false, Relaxed);
        }
    }

    fn visit(&self) {
        self.enter();
        self.presence.leave();
    }
}

fn page() -> PageRange {
    PageRange::one(PageNum::new(5))
}

/// A core that is not interrupted has cleared the page before it can use it again, however often it entered
/// meanwhile.
fn no_core_uses_a_freed_page(visits: usize, preemptions: usize) {
    check(preemptions, move || {
        let core = Arc::new(Core::new());
        let target = core.clone();
        let visitor = thread::spawn(move || (0..visits).for_each(|_| target.visit()));
        let interrupted = core.presence.must_interrupt(page());
        visitor.join().unwrap();
        core.enter();
        assert!(interrupted || !core.translated.load(Relaxed), "a freed frame is translated");
    });
}

#[test]
fn a_core_that_comes_and_goes_hears_of_the_removal() {
    no_core_uses_a_freed_page(1, 4);
}

#[test]
fn a_core_that_comes_twice_hears_of_the_removal() {
    no_core_uses_a_freed_page(2, 3);
}

/// A core that stays is interrupted, or cleared the page as it came.
#[test]
fn a_core_that_stays_is_interrupted_or_has_cleared() {
    check(4, || {
        let core = Arc::new(Core::new());
        let target = core.clone();
        let visitor = thread::spawn(move || target.enter());
        let interrupted = core.presence.must_interrupt(page());
        visitor.join().unwrap();
        assert!(interrupted || !core.translated.load(Relaxed), "a freed frame is in use");
    });
}

/// Memory that hardware reads outside the core's own tables, such as a leaf's word, is not cleared by the
/// note: a core that has taken the note reads what is there now.
fn a_core_that_sees_a_note_sees_the_writes_before_it(hear: fn(&Presence) -> Option<PageRange>) {
    check(3, move || {
        let core = Arc::new(Core::new());
        let target = core.clone();
        let visitor =
            thread::spawn(move || hear(&target.presence).is_some() && target.translated.load(Relaxed));
        core.translated.store(false, Relaxed);
        let _told = core.presence.must_interrupt(page());
        assert!(!visitor.join().unwrap(), "a page that was taken back is translated");
    });
}

#[test]
fn a_core_that_comes_sees_the_writes_before_the_note() {
    a_core_that_sees_a_note_sees_the_writes_before_it(Presence::enter);
}

#[test]
fn a_fill_from_elsewhere_sees_the_writes_before_the_note() {
    a_core_that_sees_a_note_sees_the_writes_before_it(Presence::catch_up);
}

/// A core uses a frame and leaves. A core that need not interrupt it gives the frame to another user.
#[test]
fn a_core_that_left_uses_nothing_any_more() {
    check(3, || {
        let (presence, frame) = (Arc::new(Presence::new()), Arc::new(Watched::<u64>::default()));
        presence.enter();
        let (theirs, used) = (presence.clone(), frame.clone());
        let visitor = thread::spawn(move || {
            used.get();
            theirs.leave();
        });
        if !presence.must_interrupt(page()) {
            frame.set(1);
        }
        visitor.join().unwrap();
    });
}

/// Two initiators note different pages. Neither note hides the other.
#[test]
fn two_notes_are_both_heard() {
    check(3, || {
        let presence = Arc::new(Presence::new());
        let (other, target) = (presence.clone(), presence.clone());
        let far = PageRange::one(PageNum::new(5000));
        let visitor = thread::spawn(move || {
            let first = target.enter();
            target.leave();
            first
        });
        let initiator = thread::spawn(move || other.must_interrupt(far));
        let near = presence.must_interrupt(page());
        let far_told = initiator.join().unwrap();
        let heard = [visitor.join().unwrap(), presence.enter()];
        let hears = |pages: PageRange| heard.iter().flatten().any(|hull| hull.covers(pages));
        assert!(near || hears(page()));
        assert!(far_told || hears(far));
    });
}
