//! The RadixVM kernel: runs one static Linux program on an address space whose operations do not serialise.
//!
//! `kernel_main` boots the machine, as a flat list in which each step names its requirements. After that the
//! kernel is entered by syscalls, faults and interrupts (`trap`), and by cores that have nothing to do
//! (`sched::enter_idle`).
#![no_std]
#![no_main]
#![deny(unsafe_code)]

extern crate alloc;

mod above;
#[allow(unsafe_code)] // the machine itself
mod arch;
mod bytes;
mod control;
mod counters;
mod fs;
mod mm;
mod options;
mod panic;
mod process;
mod procfs;
mod sched;
mod syscall;
mod trap;
mod users;

use above::Above;
use arch::{Boot, BootInfo};
use control::Ended;
use options::Options;

const COMMAND_LINE_BYTES: usize = 1024;

impl Boot for Above {
    extern "sysv64" fn boot(start_info: u64) -> ! {
        kernel_main(start_info)
    }
    fn run_core() -> ! {
        sched::enter_idle()
    }
}

/// Boots the kernel and runs the boot core. `start_info` is the address of the boot loader's information.
fn kernel_main(start_info: u64) -> ! {
    arch::init_first(); // needs: nothing
    let boot = BootInfo::at(start_info); // needs: the boot map
    let options = Options::read(boot.command_line(&mut [0; COMMAND_LINE_BYTES])); // needs: a port to panic on
    arch::choose_syscall_entry(false); // needs: the options
    mm::init(&boot); // needs: the boot map, this core's number
    arch::init_boot_core(&boot, |text| control::warn(text)); // needs: heap
    mm::epoch::init(arch::cores()); // needs: heap, the number of cores
    mm::read_refs::init(arch::cores()); // needs: heap, the number of cores
    if options.compress {
        mm::compressed::init(arch::cores()); // needs: heap, the number of cores
    }
    sched::come_online(); // needs: epochs, the clock
    process::vdso::init().expect("there is memory for the vDSO"); // needs: heap, to be in the epochs
    // needs: heap, the clock, to be in the epochs
    let populate = |root: &_| {
        procfs::populate(root)?;
        Ok(process::terminal::populate(root)?)
    };
    if let Err(bad) = fs::init(arch::image_bytes(boot.image()), populate) {
        refuse(bad);
    }
    mm::shrinkers::register(&[&fs::clean::CleanPages]); // needs: files
    // needs: files, the number of cores
    if !arch::init_random(fs::boot_file(".radixvm/seed").ok()) {
        control::warn(
            "random numbers are predictable: the CPU has no generator, and the boot image has no seed",
        );
    }
    fs::network::init(); // needs: heap, the clock, random numbers, that no other core runs
    arch::release_cores(); // needs: epochs
    control::booted(arch::cores(), mm::frames::total() * mm::FRAME);
    if options.probe {
        end(Ended::Status(0));
    }
    if let Err(why) = process::start_first() {
        control::refused(why);
        arch::exit(0);
    }
    sched::enter_idle() // needs: interrupts off, this stack for ever
}

/// Ends the machine because its input cannot be used. The kernel is not at fault.
fn refuse(reason: impl core::fmt::Display) -> ! {
    control::panic(reason);
    arch::exit(panic::EXIT_CODE)
}

fn end(how: Ended) -> ! {
    control::exit(how);
    arch::exit(0)
}
