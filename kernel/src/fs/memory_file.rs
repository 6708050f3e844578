//! A file in memory: pages in blocks of 512, so that no size needs much contiguous memory, and holes are free.
//!
//! ```text
//! blocks: [ Some ─▶ [ Some ─▶ page 0, None (zeroes), ... 512 ]   2 MiB of file
//!           None                                                 2 MiB of zeroes
//!           ... ]
//! ```
//! All files together may use a fixed share of the machine's memory ([`set_budget`]); beyond it, ENOSPC.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use abi::Errno;
use sync::SpinLock;

use super::content::{Content, Place};
use super::fallible;

/// Bytes of a page.
pub const PAGE: usize = 4096;
/// Pages of a block.
const BLOCK: usize = 512;
/// The longest file. It bounds what a single write at a huge offset can cost.
const MAX_LEN: u64 = 16 << 30;

type Page = Box<[u8]>;
type Block = Box<[Option<Page>]>;

/// Pages that files may use, and do use. Relaxed: the numbers guard no other memory.
static BUDGET: AtomicU64 = AtomicU64::new(0);
static USED: AtomicU64 = AtomicU64::new(0);

/// Lets all files together use `pages`.
pub fn set_budget(pages: u64) {
    BUDGET.store(pages, Ordering::Relaxed);
}

/// Pages that files may use, and pages they use.
pub fn budget() -> (u64, u64) {
    (BUDGET.load(Ordering::Relaxed), USED.load(Ordering::Relaxed))
}

fn new_page() -> Result<Page, Errno> {
    let budget = BUDGET.load(Ordering::Relaxed);
    let take = |used: u64| (used < budget).then_some(used + 1);
    USED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).map_err(|_| Errno::ENOSPC)?;
    let page = fallible::zeroes(PAGE);
    if page.is_err() {
        USED.fetch_sub(1, Ordering::Relaxed);
    }
    page.map(Vec::into_boxed_slice)
}

fn free_page(page: Page) {
    drop(page);
    USED.fetch_sub(1, Ordering::Relaxed);
}

fn new_block() -> Result<Block, Errno> {
    let mut block = fallible::empty(BLOCK)?;
    block.resize_with(BLOCK, || None);
    Ok(block.into_boxed_slice())
}

/// See the module.
pub struct MemoryFile(SpinLock<Pages>);

struct Pages {
    len: u64,
    blocks: Vec<Option<Block>>,
}

impl MemoryFile {
    /// An empty file.
    pub fn new() -> Self {
        Self(SpinLock::new(Pages { len: 0, blocks: Vec::new() }))
    }

    /// A file that begins with `bytes`.
    pub fn with(bytes: &[u8]) -> Result<Self, Errno> {
        let file = Self::new();
        file.0.lock().write(0, bytes)?;
        Ok(file)
    }
}

impl Content for MemoryFile {
    fn len(&self) -> u64 {
        self.0.lock().len
    }

    fn read(&self, at: u64, into: &mut [u8], _wait: bool) -> Result<usize, Errno> {
        Ok(self.0.lock().read(at, into))
    }

    fn write(&self, place: Place, from: &[u8], _wait: bool) -> Result<usize, Errno> {
        let mut pages = self.0.lock();
        let at = match place {
            Place::At(at) => at,
            Place::End => pages.len,
        };
        pages.write(at, from)
    }

    fn set_len(&self, len: u64) -> Result<(), Errno> {
        if len > MAX_LEN {
            return Err(Errno::EFBIG);
        }
        self.0.lock().set_len(len);
        Ok(())
    }
}

/// A range of bytes cut at page ends: block, page in the block, offset in the page, bytes.
fn pieces(at: u64, len: usize) -> impl Iterator<Item = (usize, usize, usize, usize)> {
    let mut done = 0;
    core::iter::from_fn(move || {
        let here = at + done as u64;
        let (page, offset) = ((here / PAGE as u64) as usize, (here % PAGE as u64) as usize);
        let bytes = (PAGE - offset).min(len - done);
        done += bytes;
        (bytes > 0).then_some((page / BLOCK, page % BLOCK, offset, bytes))
    })
}

impl Pages {
    fn read(&self, at: u64, into: &mut [u8]) -> usize {
        let len = self.len.saturating_sub(at).min(into.len() as u64) as usize;
        let mut rest = &mut into[..len];
        for (block, page, offset, bytes) in pieces(at, len) {
            let (now, later) = rest.split_at_mut(bytes);
            match self.blocks.get(block).and_then(|block| block.as_ref()?[page].as_ref()) {
                Some(page) => now.copy_from_slice(&page[offset..offset + bytes]),
                None => now.fill(0),
            }
            rest = later;
        }
        len
    }

    /// Writes as much as there is room for; an error if that is nothing.
    fn write(&mut self, at: u64, from: &[u8]) -> Result<usize, Errno> {
        let len = MAX_LEN.saturating_sub(at).min(from.len() as u64) as usize;
        if len == 0 && !from.is_empty() {
            return Err(Errno::EFBIG);
        }
        let mut done = 0;
        for (block, page, offset, bytes) in pieces(at, len) {
            match self.page(block, page) {
                Ok(page) => page[offset..offset + bytes].copy_from_slice(&from[done..done + bytes]),
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
            done += bytes;
        }
        if done > 0 {
            self.len = self.len.max(at + done as u64);
        }
        Ok(done)
    }

    fn page(&mut self, block: usize, page: usize) -> Result<&mut Page, Errno> {
        if self.blocks.len() <= block {
            self.blocks.try_reserve(block + 1 - self.blocks.len()).map_err(|_| Errno::ENOMEM)?;
            self.blocks.resize_with(block + 1, || None);
        }
        let block = &mut self.blocks[block];
        if block.is_none() {
            *block = Some(new_block()?);
        }
        let slot = &mut block.as_mut().ok_or(Errno::EIO)?[page];
        if slot.is_none() {
            *slot = Some(new_page()?);
        }
        slot.as_mut().ok_or(Errno::EIO)
    }

    fn set_len(&mut self, len: u64) {
        if len < self.len {
            self.cut(len);
        }
        self.len = len;
    }

    /// Drops the pages beyond `len` and clears the rest of the last one, which reads as zeroes if the file grows.
    fn cut(&mut self, len: u64) {
        let (last, offset) = ((len / PAGE as u64) as usize, (len % PAGE as u64) as usize);
        if let Some(Some(page)) =
            self.blocks.get_mut(last / BLOCK).and_then(|block| block.as_mut()?.get_mut(last % BLOCK))
        {
            page[offset..].fill(0);
        }
        let first = last + usize::from(offset > 0);
        for (index, block) in self.blocks.iter_mut().enumerate().skip(first / BLOCK) {
            let from = first.saturating_sub(index * BLOCK);
            block.iter_mut().for_each(|block| free_pages(&mut block[from..]));
        }
        self.blocks.truncate(first.div_ceil(BLOCK));
    }
}

fn free_pages(pages: &mut [Option<Page>]) {
    pages.iter_mut().filter_map(Option::take).for_each(free_page);
}

impl Drop for Pages {
    fn drop(&mut self) {
        self.cut(0);
    }
}
