//! A disk that boots the kernel by PVH: the contents of memory from 1 MiB on, behind a sector that loads
//! them.
//!
//! ```text
//!   disk     sector 0    1 ...
//!                        start info      kernel           image
//!   memory               1 MiB           2 MiB            16 MiB
//! ```

/// The size of memory that the kernel is told.
pub const MEMORY: u64 = 512 << 20;
pub const HEADS: usize = 16;
pub const SECTORS_PER_TRACK: usize = 63;

const SECTOR: usize = 512;
const INFO: u64 = 1 << 20;
const IMAGE: u64 = 16 << 20;
/// The size of the firmware's tables, which are at the end of memory.
const FIRMWARE: u64 = 1 << 20;
/// The address where the firmware loads the sector, and the offset of the descriptors in it.
const SECTOR_AT: u32 = 0x7c00;
const DESCRIPTORS: usize = 0x80;

/// The entry of the kernel, and the parts to load.
pub struct Kernel {
    pub entry: u64,
    pub parts: Vec<(u64, Vec<u8>)>,
}

/// The contents of the disk.
pub struct Disk<'a> {
    pub kernel: &'a Kernel,
    pub image: &'a [u8],
    pub command_line: String,
    /// The APIC IDs of the CPUs, or none to use the firmware's tables.
    pub cpus: Vec<u32>,
}

impl Disk<'_> {
    /// Returns the bytes of the disk, and its size in cylinders.
    pub fn bytes(&self) -> (Vec<u8>, usize) {
        let mut memory = self.start_info();
        self.kernel.parts.iter().for_each(|(at, part)| place(&mut memory, *at, part));
        place(&mut memory, IMAGE, self.image);
        let sectors = memory.len().div_ceil(SECTOR);
        let cylinders = (sectors + 1).div_ceil(HEADS * SECTORS_PER_TRACK);
        let mut disk = boot_sector(sectors as u32, self.kernel.entry as u32);
        disk.append(&mut memory);
        disk.resize(cylinders * HEADS * SECTORS_PER_TRACK * SECTOR, 0);
        (disk, cylinders)
    }

    /// Returns the start info as in `kernel/src/arch/x86_64/pvh.rs`, followed by the structures that it
    /// points to: the image's place, memory, the command line.
    fn start_info(&self) -> Vec<u8> {
        const MODULE: u64 = INFO + 64;
        const RAM: u64 = INFO + 128;
        const WORDS: u64 = INFO + 256;
        const ROOT: u64 = INFO + 1024;
        const MAGIC_AND_VERSION: u64 = 1 << 32 | 0x336e_c578;
        const ONE_MODULE: u64 = 1 << 32;
        let mut bytes = Vec::new();
        // The kernel finds the firmware's tables itself if this is 0. There are two ranges of memory.
        let root = if self.cpus.is_empty() { 0 } else { ROOT };
        let info = [MAGIC_AND_VERSION, ONE_MODULE, MODULE, WORDS, root, RAM, 2];
        let (module, kind) = ([IMAGE, self.image.len() as u64], 1);
        let ram = [0, 0x9_f000, kind, INFO, MEMORY - FIRMWARE - INFO, kind];
        for (at, numbers) in [(INFO, &info[..]), (MODULE, &module), (RAM, &ram)] {
            place(
                &mut bytes,
                at,
                &numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>(),
            );
        }
        place(&mut bytes, WORDS, self.command_line.as_bytes());
        place(&mut bytes, ROOT, &tables(ROOT, &self.cpus));
        bytes
    }
}

/// Returns ACPI tables for address `at` that list these CPUs and an I/O APIC: root pointer, RSDT, MADT.
fn tables(at: u64, cpus: &[u32]) -> Vec<u8> {
    const RSDT: u64 = 64;
    const MADT: u64 = 128;
    let table = |signature: &[u8; 4], body: &[u8]| {
        let mut bytes = [&signature[..], &(36 + body.len() as u32).to_le_bytes()].concat();
        bytes.resize(36, 0);
        bytes.extend(body);
        bytes
    };
    let mut root = [&b"RSD PTR \0disk  \0"[..], &((at + RSDT) as u32).to_le_bytes()].concat();
    root[8] = root.iter().fold(0, |sum: u8, byte| sum.wrapping_sub(*byte));
    let mut entries = vec![0; 8];
    entries.extend([1, 12, 0, 0, 0, 0, 0xc0, 0xfe, 0, 0, 0, 0]);
    cpus.iter().for_each(|id| {
        entries.extend([&[9, 16, 0, 0][..], &id.to_le_bytes(), &[1, 0, 0, 0], &id.to_le_bytes()].concat())
    });
    root.resize(RSDT as usize, 0);
    root.extend(table(b"RSDT", &((at + MADT) as u32).to_le_bytes()));
    root.resize(MADT as usize, 0);
    root.extend(table(b"APIC", &entries));
    root
}

/// Copies bytes to their place in memory, which `memory` is from [`INFO`] on.
fn place(memory: &mut Vec<u8>, at: u64, bytes: &[u8]) {
    let start = (at - INFO) as usize;
    assert!(start >= memory.len(), "what lies at {at:#x} covers what is below");
    memory.resize(start, 0);
    memory.extend(bytes);
}

/// Returns a sector that loads `sectors` sectors to [`INFO`] by the disk's ports, and enters the kernel in
/// PVH's state: 32 bits, flat segments, and the start info in ebx. A slash separates the instructions of a
/// line.
#[rustfmt::skip]
fn boot_sector(sectors: u32, entry: u32) -> Vec<u8> {
    let [info, count, entry] = [INFO as u32, sectors, entry].map(u32::to_le_bytes);
    let pointer = ((SECTOR_AT as usize + DESCRIPTORS + 24) as u16).to_le_bytes();
    let mut code: Vec<u8> = [
        &[0xfa, 0xfc][..],                          //    cli / cld
        &[0x31, 0xc0, 0x8e, 0xd8],                  //    xor ax, ax / mov ds, ax
        &[0x0f, 0x01, 0x16], &pointer,              //    lgdt [pointer]
        &[0x0f, 0x20, 0xc0, 0x0c, 1, 0x0f, 0x22, 0xc0], // mov eax, cr0 / or al, 1 / mov cr0, eax
        &[0xea, 0x18, 0x7c, 8, 0],                  //    jmp 8:next
        &[0x66, 0xb8, 0x10, 0, 0x8e, 0xd8, 0x8e, 0xc0, 0x8e, 0xd0], // next: mov ax, 16 / mov ds, ax / es / ss
        &[0xbf], &info,                             //    mov edi, info
        &[0xbe, 1, 0, 0, 0],                        //    mov esi, 1
        &[0xbd], &count,                            //    mov ebp, count
        &[0x66, 0xba, 0xf2, 1, 0xb0, 1, 0xee],      // 1: mov dx, 0x1f2 / mov al, 1 / out dx, al (one sector)
        &[0x89, 0xf0, 0x42, 0xee],                  //    mov eax, esi / inc edx / out dx, al (its number)
        &[0xc1, 0xe8, 8, 0x42, 0xee],               //    shr eax, 8 / inc edx / out dx, al
        &[0xc1, 0xe8, 8, 0x42, 0xee],               //    shr eax, 8 / inc edx / out dx, al
        &[0xb0, 0xe0, 0x42, 0xee],                  //    mov al, 0xe0 / inc edx / out dx, al (the first disk)
        &[0xb0, 0x20, 0x42, 0xee],                  //    mov al, 0x20 / inc edx / out dx, al (read)
        &[0xec, 0x24, 0x88, 0x3c, 8, 0x75, 0xf9],   // 2: in al, dx / and al, 0x88 / cmp al, 8 / jne 2b (DRQ)
        &[0x66, 0xba, 0xf0, 1, 0xb9, 0, 1, 0, 0],   //    mov dx, 0x1f0 / mov ecx, 256
        &[0x66, 0xf3, 0x6d],                        //    rep insw
        &[0x46, 0x4d, 0x75, 0xcc],                  //    inc esi / dec ebp / jne 1b
        &[0xbb], &info,                             //    mov ebx, info
        &[0xb8], &entry, &[0xff, 0xe0],             //    mov eax, entry / jmp eax
    ].concat();
    assert!(code.len() <= DESCRIPTORS);
    code.resize(DESCRIPTORS, 0);
    let descriptors: [u64; 3] = [0, 0x00cf_9b00_0000_ffff, 0x00cf_9300_0000_ffff];
    code.extend(descriptors.iter().flat_map(|descriptor| descriptor.to_le_bytes()));
    code.extend(23_u16.to_le_bytes());
    code.extend((SECTOR_AT + DESCRIPTORS as u32).to_le_bytes());
    code.resize(SECTOR - 2, 0);
    code.extend([0x55, 0xaa]);
    code
}
