//! What tasks that share an address space share with it.

use alloc::sync::Arc;
use alloc::vec::Vec;

use abi::Errno;
use percore::{Pinned, pin};
use sync::SpinLock;
use sync::atomic::{AtomicU64, Ordering, fence};
use vm::{Access, Detail, Fault, FaultError, Others, PageNum, PageRange, Region, VirtAddr};

use super::STACK;
use super::freeze::Freezer;
use super::heap::Heap;
use super::pages::Pages;
use crate::fs::StaticOrArc;
use crate::fs::{OpenFile, fallible};
use crate::mm::file_mapping;
use crate::mm::refcache_arc::RefcacheArc;
use crate::mm::space::{self, SpaceHandle, user_pages};
use crate::sched::{self, Task};

/// The program in an address space, as it was started.
pub struct Program {
    /// Its file.
    pub file: StaticOrArc<OpenFile>,
    /// Its arguments, each with a NUL.
    pub argv: Vec<u8>,
    /// Its environment, each with a NUL.
    pub envp: Vec<u8>,
    /// What was added to the addresses in its file.
    pub load_bias: u64,
}

/// An address space with what runs in it.
pub struct Memory {
    /// The space.
    pub space: Arc<SpaceHandle>,
    /// The end of the data segment.
    pub heap: Heap,
    /// Whose it is.
    pub program: RefcacheArc<Program>,
    /// `MCL_*`: whether what will be mapped is locked. Relaxed: it binds calls that begin later.
    pub locks: AtomicU64,
    /// Whether its tasks are frozen, for a copy.
    pub freezer: Freezer,
    /// Held by who adds memory in a process with limits.
    pub growing: SpinLock<()>,
}

/// A mapping, as it was at one moment.
pub struct Mapped {
    /// What the space knows.
    pub region: Region,
    /// What it shows; none: memory of the program's own.
    pub source: Option<Source>,
}

/// What a mapping shows.
pub struct Source {
    /// An open file, or memory that is shared without one.
    shown: file_mapping::Source,
    /// The first page of it.
    pub first: u64,
}

impl Source {
    /// The open file, if it is one.
    pub fn file(&self) -> Option<&StaticOrArc<OpenFile>> {
        self.shown.opened()
    }
}

impl Mapped {
    /// The caller is pinned since the region was looked at: what it shows then, whoever unmaps it, is not freed yet.
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

    /// The open file that it shows, if it shows one.
    pub fn file(&self) -> Option<&StaticOrArc<OpenFile>> {
        self.source.as_ref()?.file()
    }

    /// Whether it is the main thread's stack.
    pub fn is_stack(&self) -> bool {
        self.source.is_none() && is_stack(&self.region)
    }
}

/// Whether pages of the program's own are of the main thread's stack.
pub fn is_stack(region: &Region) -> bool {
    STACK.contains(&(region.pages.end().get() * vm::PAGE_SIZE - 1))
}

/// A space with this many radix nodes is given up in pieces. Up to 128 MiB of small pages need fewer.
const LARGE: u64 = 96;

/// Mappings that are looked at together.
const BATCH: usize = 16;

/// What is mapped, from the left, each mapping as it was when the walk came by. Nothing is locked, and the
/// caller is pinned only while it fetches the next ones: a bounded number of steps.
pub struct Mappings<'m> {
    memory: &'m Memory,
    detail: Detail,
    /// What has not been looked at.
    rest: PageRange,
    /// What was looked at: those before `next` have gone.
    found: [Option<Mapped>; BATCH],
    next: usize,
    /// The mapping that may go on in what comes next.
    open: Option<Mapped>,
}

impl Mappings<'_> {
    /// Looks at the next ones, now that all that were found have gone.
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

    /// The next one that was found.
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
    /// The memory of a program that was just loaded.
    pub fn new(space: Arc<SpaceHandle>, heap: Heap, program: RefcacheArc<Program>) -> Self {
        Self {
            space,
            heap,
            program,
            locks: AtomicU64::new(0),
            freezer: Freezer::new(),
            growing: SpinLock::new(()),
        }
    }

    /// What is mapped from `start` on.
    pub fn mappings(&self, start: PageNum, detail: Detail) -> Mappings<'_> {
        let rest = PageRange::between(start.max(user_pages().start()), user_pages().end());
        Mappings { memory: self, detail, rest, found: [const { None }; BATCH], next: 0, open: None }
    }

    /// How much is mapped, and used if `detail` says so.
    pub fn pages(&self, detail: Detail) -> Pages {
        let mut pages = Pages::default();
        self.each_part(detail, |region, shown| pages.add(region, shown, &self.program.file));
        pages
    }

    /// Shows what is mapped to `visit`, from the left, as parts of mappings, and what these show. Nothing is
    /// locked, and the caller is pinned for a bounded number of steps at a time.
    pub fn each_part(&self, detail: Detail, mut visit: impl FnMut(&Region, Option<&file_mapping::Source>)) {
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

    /// A copy, page for page, that changes independently, by `task`, which runs here. What it will map is not locked.
    ///
    /// # Errors
    /// ENOMEM; EINTR if the task is killed meanwhile.
    pub fn fork(self: &Arc<Self>, task: &Task) -> Result<Arc<Self>, Errno> {
        let (heap, space) = self.heap.copy_with(|| self.fork_space(task));
        fallible::arc(Self::new(space?, heap, self.program.clone()))
    }

    /// In one step if it is a short one: other threads that fault meanwhile spin. Else piece by piece: then they freeze.
    fn fork_space(self: &Arc<Self>, task: &Task) -> Result<Arc<SpaceHandle>, Errno> {
        if self.is_mine_alone() {
            return space::fork_in_pieces(&self.space, Others::None);
        }
        let all = user_pages();
        if self.space.piece(&pin(), all) == all {
            return space::fork(&self.space);
        }
        self.with_others_frozen(task, || space::fork_in_pieces(&self.space, Others::Freeze))
    }

    /// Unmaps what is mapped, piece by piece, if that is much and the caller is the last thread that runs here. So the
    /// thread takes its own time for it, and not that of a task that runs where the last reference goes.
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

    /// A fault by a call of another process: before a copy or after it, which may count on nobody else being here. Or one that
    /// waits until no mapping is on its way.
    ///
    /// # Errors
    /// As for the program's own.
    pub fn fault_from_outside(&self, at: VirtAddr, access: Access) -> Result<Fault, FaultError> {
        self.heap.while_not_copied(|| self.space.fault(&pin(), at, access))
    }

    /// Whether the caller is the only thread that runs here: each has a reference. Nobody else can make one of it; who looks
    /// at the memory from outside has one, or waits until it is copied.
    pub fn is_mine_alone(self: &Arc<Self>) -> bool {
        let alone = Arc::strong_count(self) == 1;
        // Acquire: pairs with the Release by which a thread that ended gave its reference up. What it mapped is seen.
        fence(Ordering::Acquire);
        alone
    }
}
