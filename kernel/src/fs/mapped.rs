//! The source of a mapping: the file or memory that it shows.

use alloc::sync::Arc;

use abi::Errno;
use percore::Pinned;
use vm::FrameNum;

use super::open_file::OpenFile;
use super::page_cache::PageCache;
use crate::above::Above;
use crate::mm::file_mapping::FileMapping;
use crate::mm::mappings::Mappings;
use crate::mm::static_or_arc::StaticOrArc;
use crate::mm::{self, Files};

impl Files for Above {
    type Source = Source;
    type Open = OpenFile;
}

/// The file or memory that a record and its copies show. An open file keeps its pages, so they are not
/// counted too.
#[derive(Clone)]
pub enum Source {
    /// A file that the program opened.
    File(StaticOrArc<OpenFile>),
    /// A file of a mounted directory, and the pages that it had then.
    Mounted(StaticOrArc<OpenFile>, Arc<PageCache>),
    /// Memory that is shared without a file.
    Memory(Arc<PageCache>),
    /// A file of the kernel, without a name: the vDSO.
    Kernel(Arc<PageCache>),
}

impl Source {
    /// Returns the source for an open file.
    ///
    /// # Errors
    /// ENODEV if the file has no pages.
    pub fn of(file: &StaticOrArc<OpenFile>) -> Result<Self, Errno> {
        let pages = file.pages().ok_or(Errno::ENODEV)?;
        pages.note_mapped();
        if file.is_mounted() {
            return Ok(Self::Mounted(file.clone(), pages.clone()));
        }
        Ok(Self::File(file.clone()))
    }

    /// Returns the pages that it shows.
    ///
    /// # Panics
    /// Never: `of` has checked that a file has pages.
    #[inline]
    pub fn pages(&self) -> &Arc<PageCache> {
        match self {
            Self::File(file) => file.pages().expect("seen when the source was made"),
            Self::Mounted(_, pages) | Self::Memory(pages) | Self::Kernel(pages) => pages,
        }
    }

    /// Returns the open file, if the source is one.
    pub fn opened(&self) -> Option<&StaticOrArc<OpenFile>> {
        match self {
            Self::File(file) | Self::Mounted(file, _) => Some(file),
            Self::Memory(_) | Self::Kernel(_) => None,
        }
    }

    /// Returns whether it is a file of the kernel.
    pub fn is_kernel(&self) -> bool {
        matches!(self, Self::Kernel(_))
    }
}

impl mm::Source for Source {
    #[inline]
    fn mappings(&self) -> &Mappings {
        self.pages().mappings()
    }
    #[inline]
    fn frame(&self, pin: &Pinned, page: u64) -> Result<FrameNum, Errno> {
        self.pages().frame(pin, page)
    }
}

impl FileMapping {
    /// Returns the file's pages.
    #[inline]
    pub fn file(&self) -> &Arc<PageCache> {
        self.source().pages()
    }
}
