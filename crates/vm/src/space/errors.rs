//! The errors' messages. Each says what was wrong with the request, and no more than the space knows.

use core::error::Error;
use core::fmt;

use crate::{BackingError, FaultError, OutOfMemory, VmError};

impl fmt::Display for VmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "the range has no pages",
            Self::OutOfRange => "the range is not within user space",
            Self::NoSpace => "no hole in the address space is large enough",
            Self::OutOfMemory => "no memory for metadata",
            Self::Exists => "part of the range is already mapped",
            Self::NotMapped => "part of the range is not mapped",
            Self::Denied => "a page of the range may never have this right",
            Self::Mixed => "the pages are of several mappings, or of a kind that does not allow this",
        })
    }
}

impl fmt::Display for FaultError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotMapped => "nothing is mapped at the address",
            Self::Denied => "the page does not allow this access",
            Self::OutOfMemory => "no memory to resolve the fault",
            Self::BeyondEnd => "the page lies beyond the end of what its mapping shows",
        })
    }
}

impl fmt::Display for BackingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OutOfMemory => "no memory for the backing's page",
            Self::BeyondEnd => "the page lies beyond the end of the backing",
        })
    }
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no memory for metadata, a table page or a frame")
    }
}

impl Error for VmError {}
impl Error for FaultError {}
impl Error for BackingError {}
impl Error for OutOfMemory {}
