//! How a read keeps the page of a file while it copies the page to a program (`read_refs=`).
//!
//! The copy may find that a page of the program's buffer is missing. That fault allocates a frame, and if
//! memory is short it reclaims: epochs pass, other tasks run, and the reader may go on on another core.
//! Meanwhile the file may drop the page by a truncation, a hole, or reclaim. There are two ways to keep the
//! frame: the fault may not reclaim (`pinned`), or the read counts itself (a [hold](HoldPage)).
//!
//! | `read_refs=` | a read writes | a fault in the middle of the copy | the frame is freed |
//! |---|---|---|---|
//! | `pinned` | nothing | is resolved if no reclaim is needed. If it is, the copy fails, and the caller goes through a buffer of the kernel, without the page | some epochs after the file and its mappings dropped it |
//! | `shared` | the descriptor's word, twice | may reclaim, sleep and move to another core | when the word is 0, which is asked every few epochs |
//! | `refcache` | this core's delta cache, twice | the same | some epochs after the last reference is dropped, a read's or another |
//! | `paygo` | an entry of this core's table, twice | the same | when no table has an entry of the frame and the word is 0, asked every few epochs |
//! | `lodic` | the entry of the page in the page table that its core runs on, twice, if that shows the page and the process asked for it; or a [counter of its process](read_counters), if readers contend; or else as `shared` | the same | when the word is 0 and no process counts a read, asked every few epochs |
//! | `lodic-file` | as `lodic`, but the entry is found by a walk of all mappings of the file, as LODIC's paper compares with, and no process is split | the same | the same |
//! | `lodic-unsplit` | as `lodic`, but threads of a process share its counters, as in LODIC's paper | the same | the same |
//! | `lodic-paper` | the entry or the descriptor's word, and nothing else. Reclaim and POSIX_FADV_DONTNEED ask before they drop a page, and leave one that is read | the same | when the word is 0 |
//! | `none` | nothing | the same | perhaps while it is read: the read then returns what the next owner writes |
//!
//! The states of a file's frame with `shared`, `paygo` and `lodic`:
//!
//! | state | a new hold is taken by | ends when |
//! |---|---|---|
//! | in the tree | any pinned core that finds it there | the file takes it out, and drops its reference |
//! | left | a pinned core that found it before | the domain calls `release`: epochs have passed |
//! | unreachable | no core | `ask` finds none |
//! | free | | |
//!
//! ```text
//!   reader   pin  find page  take hold  copy ... fault, sleep ... copy  drop hold
//!   file                          page out of the tree   header 1 to 0
//!   domain                                                     epochs   release: held    epochs   release: free
//! ```
//!
//! 1. A hold is taken by a core that is pinned and found the frame in its file's tree since it was pinned.
//!    So the frame has not been released (`page_tree.rs`, 3).
//! 2. When `release` runs, every core that found the frame in the tree has unpinned, so it has taken its hold
//!    or never will. From then on holds only become fewer. `release` asks [`ask`], and if a hold is left
//!    it gives the header one reference and drops it, which brings it back some epochs later
//!    (`page_refs.rs`). So it asks as long as the longest read lasts, and no reader has to report.
//! 3. The frame's other references do not matter to a hold: those of pages that map it are counted by the
//!    header or by a baseline, which are told only after 2.
//! 4. A hold remembers where it was counted: PayGo's anchor lies on the reader's stack. So a read that moved
//!    to another core counts itself out of the entry of the first core. A hold in the table of one core does
//!    not: a fault moves it to the word before the task may move ([`ByCore`], `arch::entry_count`).
//! 5. An entry's count moves to the word of the descriptor before its page drops its reference to the frame
//!    (`arch::entry_count`). `release` runs after all pages have dropped theirs. So it finds all holds in the
//!    word, and need not look for entries. LODIC's query, which [`ask_now`] is, looks at all entries instead.
//!    Its answer only saves the file a page that is being read: the frame is freed by `release`.
//! 6. A counter of a process keeps its frame while it has a count. `release` looks at those of all processes,
//!    if a read has ever made one for the frame (`read_counters.rs`).
//! 7. A process whose threads meet in an entry or a counter no longer counts there, but in counters of each
//!    core. One core may go on in the entries of a table, which no other uses then. Holds that were taken
//!    before are dropped where they were counted.
//! 8. A hold that was counted in an entry is dropped there if the entry shows the frame and has a count,
//!    otherwise from the word. The sum is right either way, and only the sum is asked.
//!
//! Orderings: taking a hold is Relaxed, because the epochs order it before `release` (a core flushes after
//! it has unpinned). Dropping it is Release, partner of the Acquire in [`ask`], so the frame's next owner
//! writes after the last byte was read.

use abi::config::ReadRefs;
use abi::reads;
use baselines::{Asked, PayGo, Question};
use percore::{CoreId, Pinned, pin};
use sync::SetOnce;
use vm::{FrameNum, PageNum};

use super::read_counters::{self, Counted, ReadCounters, User};
use super::{epoch, page_refs};
use crate::arch::{self, CountedEntry, KnownTables, OwnCount};
use crate::control;
use crate::counters::{self, Counter};
use crate::options::{self, ReadWay};

/// Entries of each core's table: 16 KiB. A core has as many holds as tasks that sleep in a read which began
/// there, and one more.
const ENTRIES: usize = reads::PAYGO_ENTRIES;

/// PayGo's tables, if it counts.
static TABLES: SetOnce<PayGo> = SetOnce::new();

/// A way to hold a page of a file while it is read.
pub trait HoldPage<F> {
    /// A read's claim to a file's frame. The frame is not freed before this is dropped, except with `none`.
    /// It stays with its call, in which the task keeps its space.
    type Hold;
    /// Takes a hold of `page` of a file and its frame, which the caller found in the file's tree since it was
    /// pinned by `pin`.
    fn hold(&self, pin: Pinned, file: &F, page: u64, frame: FrameNum) -> Self::Hold;
}

/// The way of all processes.
pub struct InOneWay;

/// A process that counts its reads of files itself.
pub trait Reader {
    /// A file that it reads.
    type File;
    /// Returns its counters.
    fn counters(&self) -> &ReadCounters;
    /// Returns whether enough processes have named regions of the file to look for this one's.
    fn may_show(file: &Self::File) -> bool;
    /// Returns the page at which it may show `page` of the file.
    fn shown_at(&self, file: &Self::File, page: u64) -> Option<PageNum>;
    /// Returns what is known of the page tables of its space. A process has one space, and a list of its own.
    fn known_tables(&self) -> &KnownTables;
}

/// A process that counts a read in the page table of its core, if that shows the page.
pub struct ByCore<'r, R>(pub &'r R);

/// A process that counts as in LODIC's paper.
pub struct AsInPaper<'r, R>(pub &'r R);

/// A hold in the way of all processes.
#[must_use]
pub struct Hold {
    frame: FrameNum,
    at: Place,
}

/// The place where it is counted.
enum Place {
    /// Nowhere: the reader stays pinned.
    Pin {
        _pin: Pinned,
    },
    Nowhere,
    /// The word in the frame's descriptor.
    Descriptor,
    /// The delta cache of whichever core drops it.
    Header,
    /// The entry of this core's table.
    Anchor(CoreId),
}

/// A hold that a process counts itself, if it can.
#[must_use]
pub struct LocalHold {
    frame: FrameNum,
    at: LocalPlace,
}

/// The place where it is counted.
enum LocalPlace {
    /// A counter of the process.
    Counter(Counted),
    /// The entry of a page in the process's page table.
    Entry(CountedEntry),
    /// The word in the frame's descriptor.
    Descriptor,
}

/// A hold that a process counts in the page table of its core, if it can.
#[must_use]
pub struct CoreHold {
    frame: FrameNum,
    at: CorePlace,
}

/// The place where it is counted.
enum CorePlace {
    /// The entry of the page in the core's page table, until a fault or another core stops the copy.
    Entry(OwnCount),
    /// A counter of the process.
    Counter(Counted),
    /// The word in the frame's descriptor.
    Descriptor,
}

/// A hold that is counted in an entry, or in the word of the frame's descriptor.
#[must_use]
pub struct PaperHold {
    frame: FrameNum,
    entry: Option<CountedEntry>,
}

/// Makes the tables that the option needs, and warns if it is unsafe. Called once, at boot.
pub fn init(cores: usize) {
    match options::get().read_refs {
        ReadRefs::Paygo => TABLES.set(PayGo::new(cores, ENTRIES)),
        ReadRefs::None => control::warn(
            "read_refs=none: a page may be freed while it is read, and the read then returns bytes of its next owner",
        ),
        _ => {}
    }
}

/// Returns whether holds are counted apart from the frame's other references, so that `release` must ask.
pub(super) fn is_asked() -> bool {
    let read_refs = options::get().read_refs;
    read_refs.is_lodic() || matches!(read_refs, ReadRefs::Shared | ReadRefs::Paygo)
}

/// Returns whether reclaim and advice are to [ask](ask_now) before they drop a page.
pub fn is_asked_first() -> bool {
    options::get().read_way == ReadWay::AsInPaper
}

/// Returns whether a read looks for its entry among all mappings of the file.
#[inline]
pub fn is_by_file() -> bool {
    options::get().read_refs == ReadRefs::LodicFile
}

/// Returns whether reads are also counted in page tables.
pub fn has_entries() -> bool {
    options::get().counts_in_entries()
}

/// Adds reads that were counted elsewhere to the word of a frame's descriptor.
pub(super) fn add(frame: FrameNum, reads: i64) {
    page_refs::readers(frame).add(reads);
}

impl<F> HoldPage<F> for InOneWay {
    type Hold = Hold;

    #[inline]
    fn hold(&self, pin: Pinned, _file: &F, _page: u64, frame: FrameNum) -> Hold {
        let at = match options::get().read_refs {
            ReadRefs::Pinned => Place::Pin { _pin: pin },
            ReadRefs::None => Place::Nowhere,
            ReadRefs::Shared
            | ReadRefs::Lodic
            | ReadRefs::LodicFile
            | ReadRefs::LodicUnsplit
            | ReadRefs::LodicPaper => {
                enter(frame);
                Place::Descriptor
            }
            ReadRefs::Refcache => {
                page_refs::join(&pin, frame);
                Place::Header
            }
            ReadRefs::Paygo => tables().anchor(&pin, name(frame)).map_or_else(
                || {
                    enter(frame);
                    Place::Descriptor
                },
                Place::Anchor,
            ),
        };
        Hold { frame, at }
    }
}

impl Drop for Hold {
    #[inline(always)]
    fn drop(&mut self) {
        match &self.at {
            Place::Pin { .. } | Place::Nowhere => {}
            _ => self.leave(),
        }
    }
}

impl Hold {
    /// Counts the hold out of a place that other processes may use.
    #[inline(never)]
    fn leave(&self) {
        match &self.at {
            Place::Pin { .. } | Place::Nowhere => {}
            Place::Descriptor => leave(self.frame),
            Place::Header => page_refs::leave(&pin(), self.frame),
            Place::Anchor(core) => tables().leave(&pin(), *core, name(self.frame)),
        }
    }
}

impl<R: Reader> HoldPage<R::File> for R {
    type Hold = LocalHold;

    /// Takes a hold in the process's entry of the page, if that shows the frame and this core reads there, or
    /// else in a counter of the process, if it has one for the frame. It may have one that is passed over
    /// while no other core counts in the frame's descriptor.
    #[inline(always)]
    fn hold(&self, pin: Pinned, file: &R::File, page: u64, frame: FrameNum) -> LocalHold {
        let at = 'place: {
            let user = if R::may_show(file) {
                // SAFETY: the list is that of the process, which reads here in its one space (see `Reader`).
                if let Some(entry) = unsafe { self.known_tables().count_first_read(&pin, page, frame) } {
                    break 'place LocalPlace::Entry(entry);
                }
                match self.counters().of_core(&pin) {
                    Some(user) => user,
                    None => break 'place where_searched(pin, file, page, frame, self),
                }
            } else {
                self.counters().user(&pin)
            };
            counted(pin, frame, self.counters(), user)
        };
        LocalHold { frame, at }
    }
}

impl Drop for LocalHold {
    #[inline(always)]
    fn drop(&mut self) {
        match &self.at {
            // SAFETY: a hold is dropped once.
            LocalPlace::Counter(counter) => unsafe { counter.leave() },
            // SAFETY: a hold is no `Send` and stays with its call, so this is the task that took it, and the
            // task has the same space: only `execve` changes that, and reads nothing with a hold.
            LocalPlace::Entry(entry) if unsafe { arch::uncount_read(entry, self.frame) } => {}
            _ => leave(self.frame),
        }
    }
}

impl<R: Reader> HoldPage<R::File> for ByCore<'_, R> {
    type Hold = CoreHold;

    #[inline(always)]
    fn hold(&self, pin: Pinned, file: &R::File, page: u64, frame: FrameNum) -> CoreHold {
        let at = 'place: {
            if R::may_show(file) {
                let known = arch::count_own_read(&pin, page, frame);
                if let Some(entry) = known.or_else(|| self.find(file, page, frame)) {
                    break 'place CorePlace::Entry(entry);
                }
            }
            let counters = self.0.counters();
            let user = counters.user(&pin);
            match counted(pin, frame, counters, user) {
                LocalPlace::Counter(counter) => CorePlace::Counter(counter),
                _ => CorePlace::Descriptor,
            }
        };
        CoreHold { frame, at }
    }
}

impl<R: Reader> ByCore<'_, R> {
    #[inline(never)]
    fn find(&self, file: &R::File, page: u64, frame: FrameNum) -> Option<OwnCount> {
        let shown = self.0.shown_at(file, page)?;
        arch::find_and_count_own(&pin(), page, frame, shown, epoch::domain().epoch())
    }
}

impl Drop for CoreHold {
    #[inline(always)]
    fn drop(&mut self) {
        match &self.at {
            CorePlace::Entry(count) if arch::uncount_own_read(&pin(), count, self.frame) => {}
            // SAFETY: a hold is dropped once.
            CorePlace::Counter(counter) => unsafe { counter.leave() },
            _ => leave(self.frame),
        }
    }
}

impl<R: Reader> HoldPage<R::File> for AsInPaper<'_, R> {
    type Hold = PaperHold;

    #[inline(always)]
    fn hold(&self, pin: Pinned, file: &R::File, page: u64, frame: FrameNum) -> PaperHold {
        let mut entry = None;
        if R::may_show(file) {
            // SAFETY: as in `hold` of a `Reader`.
            entry = unsafe { self.0.known_tables().count_read(page, frame) };
            entry = entry.or_else(|| find_entry(&pin, file, page, frame, self.0));
        }
        if entry.is_none() {
            enter(frame);
        }
        page_refs::readers(frame).wait();
        PaperHold { frame, entry }
    }
}

impl Drop for PaperHold {
    #[inline(always)]
    fn drop(&mut self) {
        match &self.entry {
            // SAFETY: as for `LocalHold`.
            Some(entry) if unsafe { arch::uncount_read(entry, self.frame) } => {}
            _ => leave(self.frame),
        }
    }
}

/// Looks for the process's entry of the page, which no read has found before, and counts a hold there.
#[inline(never)]
fn find_entry<R: Reader>(
    pin: &Pinned,
    file: &R::File,
    page: u64,
    frame: FrameNum,
    reader: &R,
) -> Option<CountedEntry> {
    // Each read is to walk all mappings of the file if that is compared with.
    let (known, now) = (reader.known_tables(), (!is_by_file()).then(|| epoch::domain().epoch()));
    reader.shown_at(file, page).and_then(|shown| {
        // SAFETY: as in `hold` of a `Reader`.
        unsafe { known.find_and_count(pin, page, frame, shown, now) }
    })
}

/// Counts a hold in the process's entry if that is used by others or not known yet, and in a counter if the
/// process has no such entry.
#[inline(never)]
fn where_searched<R: Reader>(
    pin: Pinned,
    file: &R::File,
    page: u64,
    frame: FrameNum,
    reader: &R,
) -> LocalPlace {
    // SAFETY: as in `hold`.
    if let Some(entry) = unsafe { reader.known_tables().count_read(page, frame) } {
        if read_counters::may_split() && reader.known_tables().make_own(&pin, page) {
            reader.counters().meet(&pin);
        }
        return LocalPlace::Entry(entry);
    }
    let (entry, counters) = (find_entry(&pin, file, page, frame, reader), reader.counters());
    let user = counters.user(&pin);
    entry.map_or_else(|| counted(pin, frame, counters, user), LocalPlace::Entry)
}

/// Counts a hold in a counter of the process, if this `user` of it has one for the frame. If it has none in
/// the first place, the frame's descriptor counts as long as no other core does there.
#[inline(always)]
fn counted(pin: Pinned, frame: FrameNum, counters: &ReadCounters, user: &User) -> LocalPlace {
    if let Some(counter) = user.take_at_once(&pin, frame) {
        return LocalPlace::Counter(counter);
    }
    if page_refs::mark(frame).is_own(&pin) {
        enter(frame);
        return LocalPlace::Descriptor;
    }
    contending(pin, frame, counters)
}

/// Looks for another counter of the process, and else counts a hold in the frame's descriptor. If readers
/// contend for that, the process gets a counter for its next read.
#[inline(never)]
fn contending(pin: Pinned, frame: FrameNum, counters: &ReadCounters) -> LocalPlace {
    if let Some(counter) = counters.take(&pin, frame) {
        return LocalPlace::Counter(counter);
    }
    enter(frame);
    if page_refs::mark(frame).leave(&pin) {
        counters.claim(&pin, frame);
    }
    LocalPlace::Descriptor
}

/// Counts a hold in the frame's descriptor.
fn enter(frame: FrameNum) {
    page_refs::readers(frame).take();
}

/// Counts a hold out of the frame's descriptor. It may have been counted in an entry, whose count has moved.
#[inline(never)]
fn leave(frame: FrameNum) {
    page_refs::readers(frame).leave();
}

/// Asks whether a read holds the frame. No core can take a new hold. Counts the question, and the cache lines
/// that it looks at.
pub(super) fn ask(pin: &Pinned, frame: FrameNum) -> Asked {
    let is_in_word = page_refs::readers(frame).count() != 0;
    let (asked, others) = if is_in_word { (HELD, 0) } else { ask_others(pin, frame) };
    // Where reclaim has asked, this only finds out when the last read ends.
    if !is_asked_first() {
        count_question(pin, 1 + others);
    }
    asked
}

/// Asks as LODIC's paper does whether a read holds a page that its file still has. `is_counted` looks at the
/// entries of all processes, adds up how many there are, and stops at the first that counts a read. Returns a
/// question if no read to a program holds the page, and none does until that is dropped. The kernel's own
/// reads are kept by their pin. The caller is pinned until the question is dropped.
pub fn ask_now<'f>(
    pin: &'f Pinned,
    frame: FrameNum,
    is_counted: impl FnOnce(&mut usize) -> bool,
) -> Option<Question<'f>> {
    let mut looked_at = 0;
    let question = page_refs::readers(frame).ask()?;
    let is_held = question.is_held() || is_counted(&mut looked_at) || question.is_held();
    count_question(pin, 1 + looked_at);
    (!is_held).then_some(question)
}

/// Counts a question, and the number of cache lines that it has looked at.
fn count_question(pin: &Pinned, lines: usize) {
    counters::add(pin, Counter::ReadQueries, 1);
    counters::add(pin, Counter::ReadQueryLines, lines as i64);
}

/// The answer of a word that has a count.
const HELD: Asked = Asked::Held(0);

/// Asks whether a process or a core counts a read of the frame, and returns how many cache lines that took.
fn ask_others(pin: &Pinned, frame: FrameNum) -> (Asked, usize) {
    let Some(tables) = TABLES.get() else { return read_counters::ask(pin, frame) };
    let (is_held, lines) = tables.ask(name(frame));
    (if is_held { HELD } else { Asked::Free }, lines)
}

fn tables() -> &'static PayGo {
    TABLES.get().expect("the tables are made at boot")
}

/// Returns the frame's name in the tables. No frame is called 0, as entries are that were never used.
fn name(frame: FrameNum) -> usize {
    frame.get() as usize + 1
}
