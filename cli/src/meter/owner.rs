//! What a contended line belongs to.
//!
//! Our kernel says what each range of physical memory is used for. The stock one does not; there the virtual address tells
//! the region, by the kernel's documented layout (Documentation/x86/x86_64/mm.rst) without randomisation.

use super::names::{KERNEL_HALF, Kernel, Names};
use super::output::Line;
use crate::guest::protocol::Owners;

/// Where our kernel sees its image: physical addresses and this.
const OUR_IMAGE: u64 = 0xffff_ffff_8000_0000;

/// Regions of the stock kernel's half: first address, address past the last, what is there.
const REGIONS: [(u64, u64, &str); 7] = [
    (
        0xffff_8880_0000_0000,
        0xffff_c880_0000_0000,
        "direct map: slab object, page table, page or per-CPU data",
    ),
    (0xffff_c900_0000_0000, 0xffff_e900_0000_0000, "vmalloc: kernel stack or large table"),
    (VMEMMAP, 0xffff_eb00_0000_0000, "struct page"),
    (0xffff_fe00_0000_0000, 0xffff_fe80_0000_0000, "CPU entry area"),
    (LINUX_IMAGE, 0xffff_ffff_a000_0000, "kernel image"),
    (0xffff_ffff_a000_0000, 0xffff_ffff_ff00_0000, "module"),
    (0xffff_ffff_ff00_0000, 0xffff_ffff_ffff_ffff, "fixed map"),
];
const LINUX_IMAGE: u64 = 0xffff_ffff_8000_0000;
const VMEMMAP: u64 = 0xffff_ea00_0000_0000;
/// The size of Linux's struct page.
const STRUCT_PAGE: u64 = 64;

/// What a line belongs to, in words.
pub fn describe(line: &Line, owners: Option<&Owners>, names: &Names<'_>) -> String {
    match (names.kernel, owners) {
        (Kernel::Ours { .. }, Some(owners)) => ours(line, owners, names),
        _ => by_address(line.linear.0, names),
    }
}

fn ours(line: &Line, owners: &Owners, names: &Names<'_>) -> String {
    let physical = line.address.0;
    let range = owners.ranges.iter().find(|(start, end, _)| (start.0..end.0).contains(&physical));
    match range.map(|(_, _, kind)| kind.as_str()) {
        Some("image") => names.kernel.data(OUR_IMAGE + physical).unwrap_or_else(|| "kernel image".to_owned()),
        Some("frame") => user(line.linear.0, names),
        // Freed before the kernel was asked: what it was can be told if a program used it.
        Some("free" | "single") if line.linear.0 < KERNEL_HALF => user(line.linear.0, names),
        Some("free" | "single") => "memory that was free again at the end".to_owned(),
        Some(kind) => kind.to_owned(),
        None => by_address(line.linear.0, names),
    }
}

fn by_address(address: u64, names: &Names<'_>) -> String {
    if address < KERNEL_HALF {
        return user(address, names);
    }
    let region = REGIONS.iter().find(|(start, end, _)| (*start..*end).contains(&address));
    match region {
        Some((LINUX_IMAGE, _, kind)) => names.kernel.data(address).unwrap_or_else(|| (*kind).to_owned()),
        Some((VMEMMAP, _, _)) => format!("struct page of frame {:#x}", (address - VMEMMAP) / STRUCT_PAGE),
        Some((_, _, kind)) => (*kind).to_owned(),
        None => "kernel memory".to_owned(),
    }
}

fn user(address: u64, names: &Names<'_>) -> String {
    match names.program.data(address).filter(|_| address < KERNEL_HALF) {
        Some(name) => format!("program's {name}"),
        None => format!("program's memory at {address:#x}"),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::guest::protocol::Address;
    use crate::meter::kallsyms::tests::kernel;
    use crate::meter::names::Loaded;
    use crate::meter::output::Output;
    use crate::meter::output::tests::FIXTURE;
    use crate::symbols::Symbols;

    fn line(physical: u64, linear: u64) -> Line {
        let line = Output::parse(FIXTURE).unwrap().lines.remove(0);
        Line { address: Address(physical), linear: Address(linear), ..line }
    }

    fn nothing() -> Loaded {
        Loaded::new(Path::new("/no/such/file"), &[], None)
    }

    #[test]
    fn linux_lines_are_named_by_region() {
        let stock = Kernel::Linux(kernel());
        let names = Names { kernel: &stock, program: nothing() };
        let owner = |linear| describe(&line(0, linear), None, &names);
        assert_eq!(owner(0xffff_ffff_8200_0040), "jiffies+0x40");
        assert_eq!(owner(0xffff_ea00_0000_0080), "struct page of frame 0x2");
        assert!(owner(0xffff_8880_0123_0000).starts_with("direct map"));
        assert!(owner(0xffff_c900_0000_3000).starts_with("vmalloc"));
        assert_eq!(owner(0x7fff_0000_0000), "program's memory at 0x7fff00000000");
    }

    #[test]
    fn our_lines_are_named_by_what_the_kernel_says() {
        let ours =
            Kernel::Ours { symbols: Box::new(Symbols::load(Path::new("/no/such/file"))), elf: Vec::new() };
        let names = Names { kernel: &ours, program: nothing() };
        let range = |start, end, kind: &str| (Address(start), Address(end), kind.to_owned());
        let owners = Owners {
            ranges: vec![
                range(0x1000, 0x2000, "slab:192"),
                range(0x2000, 0x3000, "free"),
                range(0x3000, 0x4000, "image"),
            ],
        };
        let owner = |physical, linear| describe(&line(physical, linear), Some(&owners), &names);
        assert_eq!(owner(0x1040, 0xffff_8000_0000_1040), "slab:192");
        assert!(owner(0x2040, 0xffff_8000_0000_2040).contains("free again"));
        assert!(owner(0x2040, 0x6000).contains("program's memory"));
        assert_eq!(owner(0x3040, 0xffff_ffff_8000_3040), "kernel image");
    }
}
