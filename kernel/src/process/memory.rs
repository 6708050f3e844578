//! What tasks that share an address space share with it.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::ControlFlow;

use abi::Errno;
use percore::{Pinned, pin};
use sync::SpinLock;
use sync::atomic::{AtomicU64, Ordering, fence};
use vm::{Access, Fault, FaultError, PageRange, Region, VirtAddr};

use super::STACK;
use super::heap::Heap;
use super::pages::Pages;
use crate::fs::Kept;
use crate::fs::{OpenFile, fallible};
use crate::mm::common::Common;
use crate::mm::file_mapping;
use crate::mm::space::{self, SpaceHandle, user_pages};

/// The program in an address space, as it was started.
pub struct Program {
    /// Its file.
    pub file: Kept<OpenFile>,
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
    pub program: Common<Program>,
    /// `MCL_*`: whether what will be mapped is locked. Relaxed: it binds calls that begin later.
    pub locks: AtomicU64,
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
    /// The open file; none: memory that is shared without one.
    pub file: Option<Kept<OpenFile>>,
    /// The first page of it.
    pub first: u64,
}

impl Mapped {
    /// The caller is pinned since the region was looked at: what it shows then, whoever unmaps it, is not freed yet.
    fn new(_pin: &Pinned, region: &Region) -> Self {
        let start = region.pages.start();
        let source = region.mapping.backing().map(|backing| {
            file_mapping::with(backing, |record| Source {
                file: record.opened().cloned(),
                first: record.file_page(start),
            })
        });
        Self { region: *region, source }
    }

    /// Whether it is the main thread's stack.
    pub fn is_stack(&self) -> bool {
        self.source.is_none() && STACK.contains(&(self.region.pages.end().get() * vm::PAGE_SIZE - 1))
    }
}

/// Mappings that are looked at together.
const BATCH: usize = 16;

impl Memory {
    /// The memory of a program that was just loaded.
    pub fn new(space: Arc<SpaceHandle>, heap: Heap, program: Common<Program>) -> Self {
        Self { space, heap, program, locks: AtomicU64::new(0), growing: SpinLock::new(()) }
    }

    /// Shows what is mapped to `visit`, from the left. Nothing is locked meanwhile.
    pub fn each_mapping(&self, mut visit: impl FnMut(&Mapped) -> ControlFlow<()>) -> ControlFlow<()> {
        let mut rest = user_pages();
        loop {
            let batch = self.batch(rest);
            for mapped in batch.iter().flatten() {
                visit(mapped)?;
                rest = PageRange::between(mapped.region.pages.end(), rest.end());
            }
            if batch.last().is_some_and(Option::is_none) {
                return ControlFlow::Continue(());
            }
        }
    }

    fn batch(&self, within: PageRange) -> [Option<Mapped>; BATCH] {
        let (pin, mut batch) = (pin(), [const { None }; BATCH]);
        let mut places = batch.iter_mut();
        self.space.regions(&pin, within, &mut |region| {
            if let Some(place) = places.next() {
                *place = Some(Mapped::new(&pin, region));
            }
            if places.len() > 0 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        batch
    }

    /// How much of it is used.
    pub fn pages(&self) -> Pages {
        let mut pages = Pages::default();
        let _all = self.each_mapping(|mapped| {
            pages.add(mapped, &self.program.file);
            ControlFlow::Continue(())
        });
        pages
    }

    /// A copy, page for page, that changes independently, by a thread that runs here. What it will map is not locked.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn fork(self: &Arc<Self>) -> Result<Arc<Self>, Errno> {
        let alone = self.is_mine_alone();
        let (heap, space) = self.heap.copy_with(|| space::fork(&self.space, alone));
        fallible::arc(Self::new(space?, heap, self.program.clone()))
    }

    /// A fault by a call of another process: before a copy or after it, which may count on nobody else being here.
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
