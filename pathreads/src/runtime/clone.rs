//! The interface of `clone` and `clone3`: flags, and the words of `struct clone_args` (clone(2)).

pub const CLONE_VM: u64 = 0x100;
pub const CLONE_FS: u64 = 0x200;
pub const CLONE_FILES: u64 = 0x400;
pub const CLONE_SIGHAND: u64 = 0x800;
pub const CLONE_PIDFD: u64 = 0x1000;
pub const CLONE_VFORK: u64 = 0x4000;
pub const CLONE_PARENT: u64 = 0x8000;
pub const CLONE_THREAD: u64 = 0x1_0000;
pub const CLONE_SYSVSEM: u64 = 0x4_0000;
pub const CLONE_SETTLS: u64 = 0x8_0000;
pub const CLONE_PARENT_SETTID: u64 = 0x10_0000;
pub const CLONE_CHILD_CLEARTID: u64 = 0x20_0000;
pub const CLONE_CHILD_SETTID: u64 = 0x100_0000;
pub const CLONE_CLEAR_SIGHAND: u64 = 1 << 32;

/// The flags of `clone`, without those that only `clone3` has.
pub const OF_CLONE: u64 = 0xffff_ffff;

/// The signal at the end, which is a part of the flags of `clone`.
pub const SIGNAL: u64 = 0xff;

/// The words of `struct clone_args`, and where each is.
pub const ARGS: usize = 11;
pub const ARGS_FLAGS: usize = 0;
pub const ARGS_PIDFD: usize = 1;
pub const ARGS_CHILD_TID: usize = 2;
pub const ARGS_PARENT_TID: usize = 3;
pub const ARGS_SIGNAL: usize = 4;
pub const ARGS_STACK: usize = 5;
pub const ARGS_STACK_SIZE: usize = 6;
pub const ARGS_TLS: usize = 7;
pub const ARGS_SET_TID: usize = 8;
