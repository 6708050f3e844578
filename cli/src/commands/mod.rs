//! The verbs of the command line, one file each.

pub mod bench;
pub mod commute;
pub mod contend;
pub mod demo;
pub mod doctor;
mod dry_run;
pub mod install;
mod messages;
pub mod native;
pub mod run;
pub mod strace;
pub mod syscalls;
pub mod test;
pub mod why;
