//! An address space and the state that its tasks share with it.

use alloc::sync::Arc;
use alloc::vec::Vec;

use abi::Errno;
use percore::{Pinned, pin};
use sync::SpinLock;
use sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use vm::{Access, Detail, Fault, FaultError, Others, PageNum, PageRange, Region, VirtAddr};

use super::STACK;
use super::freeze::Freezer;
use super::heap::Heap;
use super::ipc::Attachments;
use super::local_counts::LocalCounts;
use super::pages::Pages;
use crate::arch::KnownTables;
use crate::fs::page_cache::PageCache;
use crate::fs::{self, OpenFile};
use crate::mm::fallible;
use crate::mm::file_mapping;
use crate::mm::read_counters::ReadCounters;
use crate::mm::read_refs::{self, Reader};
use crate::mm::refcache_arc::RefcacheArc;
use crate::mm::space::{self, SpaceHandle, user_pages};
use crate::mm::static_or_arc::StaticOrArc;
use crate::sched::{self, Task};

/// The program in an address space, as it was started.
pub struct Program {
    /// Its file.
    pub file: StaticOrArc<OpenFile>,
    /// Its arguments, each with a NUL.
    pub argv: Vec<u8>,
    /// Its environment, each with a NUL.
    pub envp: Vec<u8>,
    /// The address of its auxiliary vector, [`AUXV_BYTES`](super::AUXV_BYTES) long.
    pub auxv: u64,
    /// The difference between addresses in memory and those in its file.
    pub load_bias: u64,
}

/// An address space with the program that runs in it.
pub struct Memory {
    /// The space.
    pub space: Arc<SpaceHandle>,
    /// The end of the data segment.
    pub heap: Heap,
    /// The program that runs in it.
    pub program: RefcacheArc<Program>,
    /// `MCL_*`: whether future mappings are locked. Relaxed: it applies to calls that begin later.
    pub locks: AtomicU64,
    /// Freezes its tasks during a copy.
    pub freezer: Freezer,
    /// The files whose reads it counts in its own page table.
    pub local_counts: LocalCounts,
    /// Its counters of reads of contended pages.
    read_counters: ReadCounters,
    /// The segments of shared memory that it shows.
    pub attachments: Attachments,
    /// Held by calls that add memory in a process with limits.
    pub growing: SpinLock<()>,
    /// The last walk over all processes that was here. Relaxed: one task walks at a time, under a lock.
    walk: AtomicU64,
    /// Whether processes of its user may look into it (PR_SET_DUMPABLE).
    dumpable: AtomicBool,
}

impl Reader for Memory {
    type File = PageCache;

    #[inline]
    fn counters(&self) -> &ReadCounters {
        &self.read_counters
    }

    #[inline]
    fn may_show(file: &PageCache) -> bool {
        file.is_shared_by_many()
    }

    fn shown_at(&self, file: &PageCache, page: u64) -> Option<PageNum> {
        if read_refs::is_by_file() {
            return self.shown_in_file(file, page);
        }
        self.local_counts.find(file.name(), page)
    }

    #[inline]
    fn known_tables(&self) -> &KnownTables {
        &self.local_counts.known
    }
}

impl Memory {
    /// Returns the place of a page by the file's mappings instead of the process's regions.
    #[inline(never)]
    fn shown_in_file(&self, file: &PageCache, page: u64) -> Option<PageNum> {
        file.mappings().find(|mapping| {
            let shown = mapping.shown_at(page, page + 1);
            (mapping.is_of(&self.space) && !shown.is_empty()).then(|| shown.start())
        })
    }
}

/// A mapping, as it was at one moment.
pub struct Mapped {
    /// The region as the space reports it.
    pub region: Region,
    /// The file or shared memory behind it, or `None` for private anonymous memory.
    pub source: Option<Source>,
}

/// The pages that a mapping shows.
pub struct Source {
    /// An open file, or memory that is shared without one.
    shown: fs::Source,
    /// The first page shown.
    pub first: u64,
}

impl Source {
    /// Returns the open file, if it is one.
    pub fn file(&self) -> Option<&StaticOrArc<OpenFile>> {
        self.shown.opened()
    }

    /// Returns whether it is a file of the kernel.
    pub fn is_kernel(&self) -> bool {
        self.shown.is_kernel()
    }
}

impl Mapped {
    /// Creates a mapping. The caller has been pinned since it looked at the region, so the backing is not
    /// freed yet even if another task unmaps it.
    fn new(_pin: &Pinned, region: &Region) -> Self {
        let start = region.pages.start();
        let source = region.mapping.backing().map(|backing| {
            file_mapping::with(backing, |record| Source {
                shown: record.source().clone(),
                first: record.file_page(start),
            })
        });
        Self { region: *region, source }
    }

    /// Returns the open file that it shows, if there is one.
    pub fn file(&self) -> Option<&StaticOrArc<OpenFile>> {
        self.source.as_ref()?.file()
    }

    /// Returns whether it is the main thread's stack.
    pub fn is_stack(&self) -> bool {
        self.source.is_none() && is_stack(&self.region)
    }
}

/// Returns whether an anonymous region belongs to the main thread's stack.
pub fn is_stack(region: &Region) -> bool {
    STACK.contains(&(region.pages.end().get() * vm::PAGE_SIZE - 1))
}

/// A space with this many radix nodes is unmapped in pieces. Spaces of up to 128 MiB of small pages need
/// fewer.
const LARGE: u64 = 96;

/// The mappings that are looked at together.
const BATCH: usize = 16;

/// Iterates over the mappings from the left, each as it was when the walk reached it. Nothing is locked, and
/// the caller is pinned only while it fetches the next batch, for a bounded number of steps.
pub struct Mappings<'m> {
    memory: &'m Memory,
    detail: Detail,
    /// The pages that have not been looked at.
    rest: PageRange,
    /// The batch that was fetched. Those before `next` have been returned.
    found: [Option<Mapped>; BATCH],
    next: usize,
    /// The mapping that may continue in the next one.
    open: Option<Mapped>,
}

impl Mappings<'_> {
    /// Fetches the next batch. All of the last one have been taken.
    fn fetch(&mut self) {
        let (pin, mut places) = (pin(), self.found.iter_mut());
        let end = self.memory.space.overview(&pin, self.rest, self.detail, BATCH, &mut |region| {
            if let Some(place) = places.next() {
                *place = Some(Mapped::new(&pin, region));
            }
        });
        self.rest = PageRange::between(end, self.rest.end());
        self.next = 0;
    }

    /// Returns whether the batch has more.
    fn has_more(&self) -> bool {
        self.found.get(self.next).is_some_and(Option::is_some)
    }

    /// Takes the next one of the batch.
    fn take(&mut self) -> Option<Mapped> {
        let next = self.found.get_mut(self.next)?.take();
        self.next += 1;
        next
    }
}

impl Iterator for Mappings<'_> {
    type Item = Mapped;

    fn next(&mut self) -> Option<Mapped> {
        loop {
            match self.take() {
                // Those of a batch are apart, so only its last may go on in the next one.
                Some(next) if self.open.is_none() && self.has_more() => return Some(next),
                Some(next) => match self.open.as_mut().and_then(|open| open.region.joined(next.region)) {
                    Some(joined) => self.open.iter_mut().for_each(|open| open.region = joined),
                    None => {
                        if let Some(done) = self.open.replace(next) {
                            return Some(done);
                        }
                    }
                },
                None if self.rest.is_empty() => return self.open.take(),
                None => self.fetch(),
            }
        }
    }
}

impl Memory {
    /// Returns whether processes of its user may look into it. A caller that has read credentials of its
    /// process finds out that it hides from them.
    pub fn is_dumpable(&self) -> bool {
        // Acquire, with the fence in `hide`.
        fence(Ordering::Acquire);
        self.dumpable.load(Ordering::Relaxed)
    }

    /// Sets whether processes of its user may look into it.
    pub fn set_dumpable(&self, dumpable: bool) {
        self.dumpable.store(dumpable, Ordering::Relaxed);
    }

    /// Hides it from processes of its user, before its process changes its credentials. Returns whether it
    /// was dumpable.
    pub fn hide(&self) -> bool {
        let was_dumpable = self.dumpable.swap(false, Ordering::Relaxed);
        fence(Ordering::Release);
        was_dumpable
    }

    /// Creates the memory of a program that was just loaded.
    pub fn new(space: Arc<SpaceHandle>, heap: Heap, program: RefcacheArc<Program>) -> Self {
        Self {
            space,
            heap,
            program,
            locks: AtomicU64::new(0),
            freezer: Freezer::new(),
            local_counts: LocalCounts::new(),
            read_counters: ReadCounters::new(),
            attachments: Attachments::new(),
            growing: SpinLock::new(()),
            walk: AtomicU64::new(0),
            dumpable: AtomicBool::new(true),
        }
    }

    /// Notes that walk number `walk` over all processes is here, and returns whether it was not before.
    pub fn enter_walk(&self, walk: u64) -> bool {
        self.walk.swap(walk, Ordering::Relaxed) != walk
    }

    /// Returns the mappings from `start` on.
    #[inline(always)]
    pub fn mappings(&self, start: PageNum, detail: Detail) -> Mappings<'_> {
        let rest = PageRange::between(start.max(user_pages().start()), user_pages().end());
        Mappings { memory: self, detail, rest, found: [const { None }; BATCH], next: 0, open: None }
    }

    /// Returns the numbers of mapped pages, and of resident pages if `detail` says so.
    pub fn pages(&self, detail: Detail) -> Pages {
        let mut pages = Pages::default();
        self.each_part(detail, |region, shown| pages.add(region, shown, &self.program.file));
        pages
    }

    /// Calls `visit` with the parts of mappings, from the left, and what these show. Nothing is locked, and
    /// the caller is pinned for a bounded number of steps at a time.
    pub fn each_part(&self, detail: Detail, mut visit: impl FnMut(&Region, Option<&fs::Source>)) {
        let mut rest = user_pages();
        while !rest.is_empty() {
            let pin = pin();
            let mut show = |region: &Region| match region.mapping.backing() {
                Some(backing) => file_mapping::with(backing, |record| visit(region, Some(record.source()))),
                None => visit(region, None),
            };
            let end = self.space.overview(&pin, rest, detail, usize::MAX, &mut show);
            rest = PageRange::between(end, rest.end());
        }
    }

    /// Copies the memory for a fork by `task`, which runs here. The copy changes independently. Its future
    /// mappings are not locked.
    ///
    /// # Errors
    /// ENOMEM, EINTR if the task is killed meanwhile.
    pub fn fork(self: &Arc<Self>, task: &Task) -> Result<Arc<Self>, Errno> {
        let (heap, space) = self.heap.copy_with(|| self.fork_space(task));
        let space = space?;
        let attachments = self.attachments.copy(|page| space.mapped(&pin(), PageRange::one(page)))?;
        let dumpable = AtomicBool::new(self.is_dumpable());
        let copy = Self { attachments, dumpable, ..Self::new(space, heap, self.program.clone()) };
        let copy = fallible::arc(copy)?;
        if read_refs::has_entries() {
            copy.local_counts.inherit(&self.local_counts);
        }
        Ok(copy)
    }

    /// Copies the space. If other threads run here, a short copy is done in one step, while threads that
    /// fault spin. A long one is done piece by piece with the other threads frozen.
    fn fork_space(self: &Arc<Self>, task: &Task) -> Result<Arc<SpaceHandle>, Errno> {
        let is_random = task.thread.has_random_addresses();
        if self.is_mine_alone() {
            return space::fork_in_pieces(&self.space, is_random, Others::None);
        }
        let all = user_pages();
        if self.space.piece(&pin(), all) == all {
            return space::fork(&self.space, is_random);
        }
        self.with_others_frozen(task, || space::fork_in_pieces(&self.space, is_random, Others::Freeze))
    }

    /// Unmaps everything piece by piece, if that is much and the caller is the last thread that runs here. So
    /// the work is done by this thread, and not by a task on the core where the last reference is dropped.
    pub fn release(self: &Arc<Self>) {
        let nodes = self.space.nodes().total();
        if nodes.created - nodes.collapsed < LARGE {
            return;
        }
        let mut rest = user_pages();
        while !rest.is_empty() && self.is_mine_alone() {
            let piece = self.space.piece(&pin(), rest);
            if self.space.unmap(&pin(), piece).is_err() {
                return;
            }
            rest = PageRange::between(piece.end(), rest.end());
            sched::pause();
        }
    }

    /// Handles a page fault for a call of another process, or one for the page of a mapping that is being
    /// moved. The fault comes before or after a copy or a move: a copy may assume that no other task changes
    /// the memory. The caller holds no lock.
    ///
    /// # Errors
    /// Returns the errors of the program's own faults.
    pub fn fault_from_outside(&self, at: VirtAddr, access: Access) -> Result<Fault, FaultError> {
        let fault = self.heap.while_not_copied(|| self.space.fault(&pin(), at, access));
        fault.unwrap_or(Err(FaultError::OutOfMemory))
    }

    /// Returns whether the caller is the only thread that runs here. Each thread has a reference, and no
    /// other task can clone one: a task that looks at the memory from outside has one, or waits until the
    /// copy is done.
    pub fn is_mine_alone(self: &Arc<Self>) -> bool {
        let alone = Arc::strong_count(self) == 1;
        // Acquire: pairs with the Release by which a thread that ended dropped its reference, so its mappings
        // are seen.
        fence(Ordering::Acquire);
        alone
    }
}
