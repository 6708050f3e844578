//! The owner of a contended line.
//!
//! Our kernel reports what each range of physical memory is used for. The stock kernel does not. There the
//! virtual address gives the region, by the kernel's documented layout (Documentation/x86/x86_64/mm.rst)
//! without randomisation, with four levels of page tables and with five. Per-CPU data is in the direct map,
//! in units of equal size. Lines that several CPUs have at the same offset of a unit are taken for such data,
//! and are named by the symbol at that offset.

use std::collections::BTreeMap;

use super::names::{KERNEL_HALF, Kernel, Names};
use super::output::Line;
use crate::guest::protocol::Owners;

/// The virtual address of our kernel's image, minus its physical address.
const OUR_IMAGE: u64 = 0xffff_ffff_8000_0000;
/// The size of Linux's struct page.
const STRUCT_PAGE: u64 = 64;
/// The size of a unit of Linux's per-CPU data.
const UNIT: u64 = 512 << 10;

/// A region of the stock kernel's half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Region {
    Direct,
    Vmalloc,
    Pages,
    Entry,
    Image,
    Module,
    Fixed,
}

/// The first address, the address past the last one, and the region.
const REGIONS: [(u64, u64, Region); 10] = [
    (0xff11_0000_0000_0000, 0xff91_0000_0000_0000, Region::Direct),
    (0xffa0_0000_0000_0000, 0xffd2_0000_0000_0000, Region::Vmalloc),
    (0xffd4_0000_0000_0000, 0xffd6_0000_0000_0000, Region::Pages),
    (0xffff_8880_0000_0000, 0xffff_c880_0000_0000, Region::Direct),
    (0xffff_c900_0000_0000, 0xffff_e900_0000_0000, Region::Vmalloc),
    (0xffff_ea00_0000_0000, 0xffff_eb00_0000_0000, Region::Pages),
    (0xffff_fe00_0000_0000, 0xffff_fe80_0000_0000, Region::Entry),
    (0xffff_ffff_8000_0000, 0xffff_ffff_a000_0000, Region::Image),
    (0xffff_ffff_a000_0000, 0xffff_ffff_ff00_0000, Region::Module),
    (0xffff_ffff_ff00_0000, 0xffff_ffff_ffff_ffff, Region::Fixed),
];

/// Returns the transfers per round by the use that our kernel reports for the memory, of the lines that moved
/// most. On other kernels there are none.
pub fn transfers(lines: &[Line], rounds: usize, owners: Option<&Owners>) -> BTreeMap<String, f64> {
    let mut sums = BTreeMap::new();
    for line in lines.iter().filter(|_| owners.is_some()) {
        let kind = owners.and_then(|owners| owners.kind(line.address.0)).unwrap_or("?");
        *sums.entry(kind.to_owned()).or_default() += line.transfers as f64 / rounds.max(1) as f64;
    }
    sums
}

/// Names the owners of a run's lines.
pub struct Namer<'a> {
    names: &'a Names<'a>,
    owners: Option<&'a Owners>,
    /// The number of lines at each offset of a unit.
    units: BTreeMap<u64, usize>,
}

impl<'a> Namer<'a> {
    /// Prepares the names of `lines`, with our kernel's report of its memory.
    pub fn new(names: &'a Names<'a>, owners: Option<&'a Owners>, lines: &[Line]) -> Self {
        let mut units = BTreeMap::new();
        for line in
            lines.iter().filter(|line| region(line.linear.0).is_some_and(|(_, kind)| kind == Region::Direct))
        {
            *units.entry(line.linear.0 % UNIT).or_default() += 1;
        }
        Namer { names, owners, units }
    }

    /// Returns the owner of a line, in words.
    pub fn name(&self, line: &Line) -> String {
        self.name_at(line.address.0, line.linear.0)
    }

    /// Returns the owner of the line at an address, in words.
    pub fn name_at(&self, physical: u64, linear: u64) -> String {
        match (self.names.kernel, self.owners) {
            (Kernel::Ours { .. }, Some(owners)) => self.ours(physical, linear, owners),
            _ => self.by_address(linear),
        }
    }

    fn ours(&self, physical: u64, linear: u64, owners: &Owners) -> String {
        match owners.kind(physical) {
            Some("image") => self.image(OUR_IMAGE + physical),
            Some("frame") => self.user(linear),
            // A frame that was unmapped before the kernel's report. Its virtual address shows that the
            // program used it.
            Some("free" | "single") if linear < KERNEL_HALF => self.user(linear),
            Some("free" | "single") => "memory that was free again at the end".to_owned(),
            Some(kind) => kind.to_owned(),
            None => self.by_address(linear),
        }
    }

    fn by_address(&self, address: u64) -> String {
        if address < KERNEL_HALF {
            return self.user(address);
        }
        let Some((start, region)) = region(address) else { return format!("kernel memory at {address:#x}") };
        match region {
            Region::Image => self.image(address),
            Region::Pages => format!("struct page of frame {:#x}", (address - start) / STRUCT_PAGE),
            Region::Direct => {
                self.per_cpu(address).unwrap_or_else(|| "slab object, page table or page".to_owned())
            }
            Region::Vmalloc => "vmalloc: kernel stack or large table".to_owned(),
            Region::Entry => "CPU entry area".to_owned(),
            Region::Module => "module".to_owned(),
            Region::Fixed => "fixed map".to_owned(),
        }
    }

    fn per_cpu(&self, address: u64) -> Option<String> {
        let offset = address % UNIT;
        let several = self.units.get(&offset).is_some_and(|lines| *lines > 1);
        let name = self.names.kernel.per_cpu(offset).filter(|_| several)?;
        Some(format!("per-CPU {name}"))
    }

    fn image(&self, address: u64) -> String {
        self.names.kernel.data(address).unwrap_or_else(|| "kernel image".to_owned())
    }

    fn user(&self, address: u64) -> String {
        match self.names.program.data(address).filter(|_| address < KERNEL_HALF) {
            Some(name) => format!("program's {name}"),
            None => format!("program's memory at {address:#x}"),
        }
    }
}

fn region(address: u64) -> Option<(u64, Region)> {
    let found = REGIONS.iter().find(|(start, end, _)| (*start..*end).contains(&address));
    found.map(|(start, _, region)| (*start, *region))
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
        let owner = |linear| Namer::new(&names, None, &[]).name(&line(0, linear));
        assert_eq!(owner(0xffff_ffff_8200_0040), "jiffies+0x40");
        assert_eq!(owner(0xffff_ea00_0000_0080), "struct page of frame 0x2");
        assert!(owner(0xffff_8880_0123_0000).starts_with("slab object"));
        assert!(owner(0xffff_c900_0000_3000).starts_with("vmalloc"));
        assert!(owner(0xff11_0000_0123_0000).starts_with("slab object"));
        assert_eq!(owner(0x7fff_0000_0000), "program's memory at 0x7fff00000000");
    }

    #[test]
    fn lines_at_one_offset_of_two_units_are_per_cpu_data() {
        let stock = Kernel::Linux(kernel());
        let names = Names { kernel: &stock, program: nothing() };
        let lines = [0x3e00_1040, 0x3e08_1040, 0x3e00_1080].map(|at| line(at, 0xff11_0000_0000_0000 + at));
        let owner = |place: usize| Namer::new(&names, None, &lines).name(&lines[place]);
        assert_eq!(
            (owner(0).as_str(), owner(1).as_str()),
            ("per-CPU cpu_number+0x40", "per-CPU cpu_number+0x40")
        );
        assert!(owner(2).starts_with("slab object"));
    }

    #[test]
    fn transfers_are_summed_by_use() {
        let lines = [0x1040, 0x1080, 0x9000].map(|physical| Line { transfers: 3, ..line(physical, 0) });
        let owners = Owners { ranges: vec![(Address(0x1000), Address(0x2000), "page-counts".to_owned())] };
        let sums = transfers(&lines, 2, Some(&owners));
        assert_eq!(
            sums.into_iter().collect::<Vec<_>>(),
            [("?".to_owned(), 1.5), ("page-counts".to_owned(), 3.0)]
        );
        assert!(transfers(&lines, 2, None).is_empty());
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
        let owner = |physical, linear| Namer::new(&names, Some(&owners), &[]).name(&line(physical, linear));
        assert_eq!(owner(0x1040, 0xffff_8000_0000_1040), "slab:192");
        assert!(owner(0x2040, 0xffff_8000_0000_2040).contains("free again"));
        assert!(owner(0x2040, 0x6000).contains("program's memory"));
        assert_eq!(owner(0x3040, 0xffff_ffff_8000_3040), "kernel image");
    }
}
