//! The PVH start info from the boot loader: memory, command line, the initial image, ACPI's root.

use firmware::Memory;

use super::physmap::{phys_to_virt, read_phys};

const MAGIC: u32 = 0x336e_c578;
const RAM: u32 = 1;

#[repr(C)]
#[derive(Clone, Copy)]
struct StartInfo {
    magic: u32,
    version: u32,
    flags: u32,
    modules: u32,
    module_list: u64,
    command_line: u64,
    rsdp: u64,
    memory_map: u64,
    memory_entries: u32,
    reserved: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Module {
    at: u64,
    bytes: u64,
    command_line: u64,
    reserved: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct MemoryEntry {
    at: u64,
    bytes: u64,
    kind: u32,
    reserved: u32,
}

/// The boot loader's start info. The data that it points to stays readable until memory is handed out, and
/// the image for ever.
#[derive(Clone, Copy)]
pub struct BootInfo {
    info: StartInfo,
    image: (u64, u64),
}

impl BootInfo {
    /// Reads the start info at physical address `at`.
    ///
    /// # Panics
    /// If there is none.
    pub fn at(at: u64) -> Self {
        let info: StartInfo = read_phys(at);
        assert!(info.magic == MAGIC && info.version >= 1, "not booted by PVH with a memory map");
        Self { info, image: image(&info) }
    }

    /// Returns the memory map, in the loader's order.
    pub fn memory(&self) -> impl Iterator<Item = Memory> + Clone {
        let info = self.info;
        (0..u64::from(info.memory_entries))
            .map(move |n| read_phys::<MemoryEntry>(info.memory_map + n * size_of::<MemoryEntry>() as u64))
            .map(|entry| Memory {
                start: entry.at,
                end: entry.at.saturating_add(entry.bytes),
                usable: entry.kind == RAM,
            })
    }

    /// Returns the initial image: (start, end) in bytes, empty without one.
    pub fn image(&self) -> (u64, u64) {
        self.image
    }

    /// Returns the kernel's command line, copied into `buffer` and truncated where the buffer ends.
    pub fn command_line<'a>(&self, buffer: &'a mut [u8]) -> &'a [u8] {
        let mut length = 0;
        while self.info.command_line != 0 && length < buffer.len() {
            let byte: u8 = read_phys(self.info.command_line + length as u64);
            if byte == 0 {
                break;
            }
            buffer[length] = byte;
            length += 1;
        }
        &buffer[..length]
    }

    /// Returns the physical address of ACPI's root pointer, or 0 if the loader knows none.
    pub fn rsdp(&self) -> u64 {
        self.info.rsdp
    }
}

fn image(info: &StartInfo) -> (u64, u64) {
    if info.modules == 0 {
        return (0, 0);
    }
    let module: Module = read_phys(info.module_list);
    (module.at, module.at + module.bytes)
}

/// Returns the image's bytes, which stay for ever.
pub fn image_bytes((start, end): (u64, u64)) -> &'static [u8] {
    // SAFETY: the loader put the image there, and the memory map keeps it out of the allocator's hands.
    unsafe { core::slice::from_raw_parts(phys_to_virt(start), (end - start) as usize) }
}
