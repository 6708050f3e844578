//! Extended attributes. No file has any, and none can be given some.

use abi::Errno;
use percore::pin;

use super::{Call, Outcome};

/// Returns `outcome` if the path in argument 0 leads to a file.
fn of_path(call: &Call<'_>, follow: bool, outcome: Outcome) -> Outcome {
    call.find(&call.path(0)?, &pin(), follow)?.existing()?;
    outcome
}

/// Returns `outcome` if argument 0 is a descriptor.
fn of_file(call: &Call<'_>, outcome: Outcome) -> Outcome {
    call.file(0)?;
    outcome
}

const REFUSED: Outcome = Err(Errno::EOPNOTSUPP);

pub fn getxattr(call: &mut Call<'_>) -> Outcome {
    of_path(call, true, REFUSED)
}

pub fn lgetxattr(call: &mut Call<'_>) -> Outcome {
    of_path(call, false, REFUSED)
}

pub fn fgetxattr(call: &mut Call<'_>) -> Outcome {
    of_file(call, REFUSED)
}

pub fn setxattr(call: &mut Call<'_>) -> Outcome {
    of_path(call, true, REFUSED)
}

pub fn lsetxattr(call: &mut Call<'_>) -> Outcome {
    of_path(call, false, REFUSED)
}

pub fn fsetxattr(call: &mut Call<'_>) -> Outcome {
    of_file(call, REFUSED)
}

pub fn removexattr(call: &mut Call<'_>) -> Outcome {
    of_path(call, true, REFUSED)
}

pub fn lremovexattr(call: &mut Call<'_>) -> Outcome {
    of_path(call, false, REFUSED)
}

pub fn fremovexattr(call: &mut Call<'_>) -> Outcome {
    of_file(call, REFUSED)
}

/// Returns the number of bytes of the names of all attributes.
pub fn listxattr(call: &mut Call<'_>) -> Outcome {
    of_path(call, true, Ok(0))
}

pub fn llistxattr(call: &mut Call<'_>) -> Outcome {
    of_path(call, false, Ok(0))
}

pub fn flistxattr(call: &mut Call<'_>) -> Outcome {
    of_file(call, Ok(0))
}
