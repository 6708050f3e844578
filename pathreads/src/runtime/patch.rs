//! Rewrites the system calls in code.
//!
//! It takes a millisecond for the C library, which is as long as a small program runs. So while a process has
//! one thread, code waits ([`add`]) and the kernel dispatches its calls. It is rewritten after
//! [`DISPATCHED_FIRST`] of them, or before there is a second thread. Then no other thread can be executing
//! it, and this one is in the runtime. Its way back, and those of the handlers that it interrupted, lead to
//! starts of instructions, which are the same before and after. In a process with threads code is rewritten
//! when it is mapped, before its first instruction.
//!
//! A call's jump leads to a jump nearby, because slots are too far from most code for five bytes, and
//! that one to the slot. Both kinds are written while their pages are new and become executable before
//! a jump leads there. They are never changed after that, so executing them needs no lock.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use pathreads::elf::Headers;
use pathreads::sites::{Code, JUMP, MAX_COPIED, Relative, Site};
use pathreads::{PAGE, RUNTIME_BASE, RUNTIME_END, SLOTS_BASE, maps, page_end, page_start, slot};

use crate::dispatch::OF_INTEREST;
use crate::entry::{address, slow_entry};
use crate::sys::{
    self, MAP_ANONYMOUS, MAP_FIXED, MAP_FIXED_NOREPLACE, MAP_PRIVATE, NO_FILE, PROT_EXEC, PROT_READ,
    PROT_WRITE, Result, harmless, nr,
};
use crate::{boot, isolate, sigaction, spawn, stack, user};

/// Executable memory that was mapped from a file.
#[derive(Clone, Copy)]
pub struct Mapping {
    pub address: u64,
    pub length: u64,
    pub protection: u64,
    pub file: u64,
    pub offset: u64,
}

/// The largest file that is looked through. Reading a larger one takes longer than its calls cost.
const LARGEST: u64 = 32 << 20;

/// The bytes of code for each call that there is room for. The C library has a call in 2,600 bytes.
const DENSITY: usize = 64;

/// The bytes of a jump nearby.
const NEAR: u64 = 16;

/// Held while code is rewritten, and over a `fork`. Its holder has all signals blocked.
pub static LOCK: Lock = Lock(AtomicU32::new(0));

/// The first free slot. Changed under the lock.
static NEXT_SLOT: AtomicU64 = AtomicU64::new(SLOTS_BASE);

/// A lock for a moment.
pub struct Lock(AtomicU32);

impl Lock {
    /// Takes the lock, and sleeps while another thread has it.
    pub fn lock(&self) {
        const WAIT: u64 = 128;
        if self.0.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            return;
        }
        // 2 says that a thread may sleep. Acquire pairs with the release in `unlock`.
        while self.0.swap(2, Ordering::Acquire) != 0 {
            let _ = harmless!(nr::FUTEX, self.0.as_ptr() as u64, WAIT, 2, 0);
        }
    }

    /// Releases the lock.
    pub fn unlock(&self) {
        const WAKE: u64 = 129;
        // Release pairs with the acquire in `lock`.
        if self.0.swap(0, Ordering::Release) == 2 {
            let _ = harmless!(nr::FUTEX, self.0.as_ptr() as u64, WAKE, 1);
        }
    }
}

/// The calls of a process with one thread that the kernel dispatches before code is rewritten.
pub const DISPATCHED_FIRST: u32 = 500;

/// The number of calls that the kernel dispatched, until code is rewritten. The handler of SIGSYS counts.
pub static DISPATCHED: AtomicU32 = AtomicU32::new(0);

/// Whether the process may have several threads.
static HAS_THREADS: AtomicBool = AtomicBool::new(false);

/// Whether no more code is rewritten, because a filter may forbid the calls that this takes.
static IS_OVER: AtomicBool = AtomicBool::new(false);

/// The most mappings that wait. Others are rewritten at once.
const MOST_WAITING: usize = 48;

/// The longest path of a file whose code can wait, with a zero at the end.
const PATH: usize = 256;

/// A mapping that waits.
#[derive(Clone, Copy)]
struct Waiting {
    mapping: Mapping,
    identity: Identity,
    path: [u8; PATH],
}

/// The mappings that wait. They are used by the only thread of a process, with all signals blocked.
struct List(UnsafeCell<[Waiting; MOST_WAITING]>);

// SAFETY: see above.
unsafe impl Sync for List {}

static WAITING: List = List(UnsafeCell::new(
    [const {
        Waiting {
            mapping: Mapping { address: 0, length: 0, protection: 0, file: 0, offset: 0 },
            identity: [0; 4],
            path: [0; PATH],
        }
    }; MOST_WAITING],
));

/// The number of mappings that wait.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// The vDSO's address while it waits, or 0.
static WAITING_VDSO: AtomicU64 = AtomicU64::new(0);

/// Whether code that waits is found in the list of the process's mappings. The list has the path of each
/// file, and what the program has done to its mappings meanwhile. So as long as nothing was rewritten,
/// nothing is noted.
static SEARCH: AtomicU32 = AtomicU32::new(NOT_LISTED);

/// Mappings are noted: the list shows no files, has been searched, or cannot be read.
const NOT_LISTED: u32 = 0;
/// There is no code that waits.
const FOUND_NONE: u32 = 1;
/// There may be.
const TO_FIND: u32 = 2;

/// Has code that waits found in the list of mappings, if there is one.
pub fn search_later() {
    let mut link = [0_u8; 16];
    let has_list =
        harmless!(nr::READLINK, c"/proc/self".as_ptr() as u64, link.as_mut_ptr() as u64, link.len() as u64);
    if has_list.is_ok() {
        SEARCH.store(FOUND_NONE, Ordering::Relaxed);
    }
}

/// Takes on the vDSO like other code. Returns whether the program may use it.
pub fn add_vdso(address: u64) -> bool {
    if !spawn::dispatches() {
        return rewrite_vdso(address);
    }
    WAITING_VDSO.store(address, Ordering::Relaxed);
    true
}

/// Takes on a mapping of code: it is rewritten later, or now.
pub fn add(mapping: Mapping) {
    add_at(mapping, None);
}

/// Does the same for a file of which the path is known.
pub fn add_at(mapping: Mapping, path: Option<u64>) {
    if IS_OVER.load(Ordering::Relaxed) {
        return;
    }
    if HAS_THREADS.load(Ordering::Relaxed) || !spawn::dispatches() || !wait(mapping, path) {
        rewrite(mapping);
    }
}

/// Lets a mapping wait. Returns whether it can: its file has a path by which it is found again.
fn wait(mapping: Mapping, known: Option<u64>) -> bool {
    let find = |state: u32| matches!(state, TO_FIND | FOUND_NONE).then_some(TO_FIND);
    if SEARCH.fetch_update(Ordering::Relaxed, Ordering::Relaxed, find).is_ok() {
        return true;
    }
    let count = COUNT.load(Ordering::Relaxed);
    let Ok(identity) = identity(mapping.file) else { return false };
    if count == MOST_WAITING {
        return false;
    }
    let mut path = [0; PATH];
    let length = known.map_or(0, |known| user::read_text(known, &mut path));
    // The program may change the folder that other paths begin at.
    if path[0] != b'/' || !path[..length].contains(&0) {
        path = [0; PATH];
        if !boot::path_of(mapping.file, &mut path).is_ok_and(|length| length < PATH) {
            return false;
        }
    }
    with_handlers_waiting(|| {
        // SAFETY: this is the only thread, and no handler comes.
        unsafe { (*WAITING.0.get())[count] = Waiting { mapping, identity, path } };
        COUNT.store(count + 1, Ordering::Relaxed);
    });
    true
}

/// Runs `f` with signals blocked, if the program has handlers.
fn with_handlers_waiting(f: impl FnOnce()) {
    if !sigaction::has_handlers() {
        return f();
    }
    let mask = sys::set_mask(sys::ALL_BUT_FAULTS);
    f();
    sys::set_mask(mask);
}

/// Rewrites the code that waits if it has waited long enough.
pub fn rewrite_if_due() {
    if DISPATCHED.load(Ordering::Relaxed) >= DISPATCHED_FIRST && waits() {
        rewrite_waiting();
    }
}

/// Returns whether code of files waits.
fn waits() -> bool {
    COUNT.load(Ordering::Relaxed) > 0 || SEARCH.load(Ordering::Relaxed) == TO_FIND
}

/// Returns whether the process may have several threads.
pub fn has_threads() -> bool {
    HAS_THREADS.load(Ordering::Relaxed)
}

/// Prepares for a second thread.
pub fn begin_threads() {
    // First, so that code which a handler maps meanwhile does not wait.
    let had_threads = HAS_THREADS.swap(true, Ordering::Relaxed);
    if !had_threads || waits() {
        rewrite_waiting();
    }
}

/// Rewrites the code that waits. Code that is mapped later keeps its calls.
pub fn end() {
    IS_OVER.store(true, Ordering::Relaxed);
    rewrite_waiting();
}

/// Begins a process with one thread: a child with a copy of the memory.
pub fn begin_process() {
    HAS_THREADS.store(false, Ordering::Relaxed);
    DISPATCHED.store(0, Ordering::Relaxed);
}

fn rewrite_waiting() {
    let mask = sys::set_mask(sys::ALL_BUT_FAULTS);
    // SAFETY: this is the only thread, and signals are blocked.
    let waiting = unsafe { &(&(*WAITING.0.get()))[..COUNT.load(Ordering::Relaxed)] };
    for Waiting { mapping, identity: known, path } in waiting {
        let Ok(file) = sys::open(path.as_ptr() as u64, 0) else { continue };
        if identity(file) == Ok(*known) {
            rewrite(Mapping { file, ..*mapping });
        }
        sys::close(file);
    }
    COUNT.store(0, Ordering::Relaxed);
    if SEARCH.swap(NOT_LISTED, Ordering::Relaxed) == TO_FIND {
        rewrite_listed();
    }
    let vdso = WAITING_VDSO.swap(0, Ordering::Relaxed);
    if vdso != 0 {
        // Its own pages become executable again, as the slots' do before.
        rewrite_vdso(vdso);
    }
    sys::set_mask(mask);
}

/// The most bytes of a list of mappings that are read.
const MOST_OF_LIST: u64 = 8 << 20;

/// Rewrites the code in the list of mappings.
fn rewrite_listed() {
    let Ok(memory) = sys::map_zeroes(MOST_OF_LIST) else { return };
    // SAFETY: the memory is new, and used until the end of this function.
    let list = unsafe { core::slice::from_raw_parts_mut(memory as *mut u8, MOST_OF_LIST as usize) };
    let mut length = 0;
    if let Ok(file) = sys::open(c"/proc/self/maps".as_ptr() as u64, 0) {
        // The last byte stays zero, so each path can have one at its end.
        while length < list.len() - 1 {
            let (at, room) = (list[length..].as_mut_ptr() as u64, (list.len() - 1 - length) as u64);
            match harmless!(nr::READ, file, at, room) {
                Ok(read @ 1..) => length += read as usize,
                _ => break,
            }
        }
        sys::close(file);
    }
    list[..length].iter_mut().filter(|byte| **byte == b'\n').for_each(|byte| *byte = 0);
    for code in list[..length].split(|byte| *byte == 0).filter_map(maps::parse) {
        if code.start < RUNTIME_END && SLOTS_BASE < code.end {
            continue;
        }
        let Ok(file) = sys::open(code.path.as_ptr() as u64, 0) else { continue };
        let (address, length) = (code.start, code.end - code.start);
        rewrite(Mapping { address, length, protection: code.protection, file, offset: code.offset });
        sys::close(file);
    }
    // SAFETY: the list is not used any more.
    unsafe { sys::munmap(memory, MOST_OF_LIST) };
}

/// Notes that the program changes its mappings in a range. Code there does not wait any more.
pub fn forget(at: u64, length: u64) {
    let vdso = WAITING_VDSO.load(Ordering::Relaxed);
    if at < vdso + MOST_OF_VDSO && vdso < at.saturating_add(length) {
        WAITING_VDSO.store(0, Ordering::Relaxed);
    }
    if COUNT.load(Ordering::Relaxed) == 0 {
        return;
    }
    with_handlers_waiting(|| {
        let count = COUNT.load(Ordering::Relaxed);
        // SAFETY: this is the only thread, since code waits, and no handler comes.
        let waiting = unsafe { &mut (&mut (*WAITING.0.get()))[..count] };
        for Waiting { mapping, .. } in waiting {
            let end = mapping.address + mapping.length;
            if at < end && mapping.address < at.saturating_add(length) {
                // The part before the change is as it was.
                mapping.length = at.saturating_sub(mapping.address);
            }
        }
    });
}

/// A file's number, size, time of modification and device.
pub type Identity = [u64; 4];

/// Returns what tells a file from others.
pub fn identity(file: u64) -> Result<Identity> {
    let status = status(file)?;
    Ok([4, 5, 14, 17].map(|index| status[index]))
}

/// Rewrites the calls in a mapping. The kernel dispatches those that cannot be rewritten.
fn rewrite(mapping: Mapping) {
    let Ok(size) = status(mapping.file).map(|status| status[SIZE]) else { return };
    if mapping.length == 0 || size == 0 || size > LARGEST {
        return;
    }
    // SAFETY: the kernel chooses a free address.
    let Ok(view) = (unsafe { sys::mmap(0, size, PROT_READ, MAP_PRIVATE, mapping.file, 0) }) else { return };
    // SAFETY: the file is mapped to be read until the end of this function.
    let file = unsafe { core::slice::from_raw_parts(view as *const u8, size as usize) };
    if let Some(code) = Code::new(file, mapping.offset, mapping.length) {
        with_sites(code, |sites| {
            let mask = sys::set_mask(sys::ALL_BUT_FAULTS);
            LOCK.lock();
            // A mapping that cannot be changed keeps its calls.
            let _ = rewrite_sites(mapping, file, sites);
            LOCK.unlock();
            sys::set_mask(mask);
        });
    }
    // SAFETY: `file` is not used any more.
    unsafe { sys::munmap(view, size) };
}

/// The most bytes of a vDSO.
const MOST_OF_VDSO: u64 = 16 * PAGE;

/// Rewrites the calls in the vDSO, which is a file only in memory. Returns whether the program may use it.
fn rewrite_vdso(address: u64) -> bool {
    // SAFETY: the kernel says that the vDSO is there. It has at least a page.
    let head = unsafe { core::slice::from_raw_parts(address as *const u8, PAGE as usize) };
    let span = Headers::parse(head).and_then(Headers::span);
    let Some((0, length)) = span.filter(|(_, end)| *end <= MOST_OF_VDSO) else { return true };
    // SAFETY: its headers say that it has this length.
    let image = unsafe { core::slice::from_raw_parts(address as *const u8, length as usize) };
    let mapping =
        Mapping { address, length, protection: PROT_READ | PROT_EXEC, file: sys::NO_FILE, offset: 0 };
    let mut is_usable = true;
    if let Some(code) = Code::new(image, 0, length) {
        with_sites(code, |sites| is_usable = rewrite_sites(mapping, image, sites).is_ok());
    }
    // A failure before the code was made writable has changed nothing.
    is_usable || protect(address, length, PROT_READ | PROT_EXEC).is_ok()
}

/// Finds the calls that can be rewritten, and calls `f` if there are any.
fn with_sites(code: Code<'_>, f: impl FnOnce(&[Site])) {
    let most = code.length() as usize / DENSITY + 1;
    let bytes = (most * size_of::<Site>()) as u64;
    let Ok(memory) = sys::map_zeroes(bytes) else { return };
    let sites = memory as *mut Site;
    let mut count = 0;
    // Go has given its stack away when it ends a thread, and a slot would write to it.
    let is_left = |site: &Site| stack::is_apart() && code.is_exit(site);
    for site in code.sites().filter(|site| !is_left(site)).take(most) {
        // SAFETY: the memory is new, and there are no more sites than it is for.
        unsafe { sites.add(count).write(site) };
        count += 1;
    }
    if count > 0 {
        // SAFETY: this number was written.
        f(unsafe { core::slice::from_raw_parts(sites, count) });
    }
    // SAFETY: the memory is not used any more.
    unsafe { sys::munmap(memory, bytes) };
}

/// The word of a file's status that is its size.
const SIZE: usize = 5;

/// Returns a file's status as words of `struct statx`.
fn status(file: u64) -> Result<[u64; 32]> {
    const AT_EMPTY_PATH: u64 = 0x1000;
    const STATX_BASIC_STATS: u64 = 0x7ff;
    let mut status = [0_u64; 32];
    let (empty, at) = (c"".as_ptr() as u64, status.as_mut_ptr() as u64);
    harmless!(nr::STATX, file, empty, AT_EMPTY_PATH, STATX_BASIC_STATS, at)?;
    Ok(status)
}

/// Pages that are being filled with code.
struct Pages {
    at: u64,
    length: u64,
}

impl Pages {
    /// Writes `bytes` at an offset.
    fn write(&self, offset: u64, bytes: &[u8]) {
        assert!(offset + bytes.len() as u64 <= self.length);
        // SAFETY: the pages are new and writable, and the bytes fit.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), (self.at + offset) as *mut u8, bytes.len()) };
    }

    /// Makes the pages executable.
    fn seal(&self) -> Result {
        let rights = PROT_READ | PROT_EXEC;
        if isolate::is_on() && !(SLOTS_BASE..RUNTIME_END).contains(&self.at) {
            return isolate::memory::protect(self.at, self.length, rights);
        }
        protect(self.at, self.length, rights)
    }

    /// Records the pages under `--isolate`, so that no mapping of the program replaces them. Returns whether
    /// they may stay.
    fn record(&self) -> bool {
        let (rights, flags) = (PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE);
        let mapping = [self.at, self.length, rights, flags, NO_FILE, 0];
        !isolate::is_on() || isolate::memory::map(mapping).is_ok()
    }
}

fn protect(at: u64, length: u64, protection: u64) -> Result {
    // SAFETY: the pages are code that is not executed yet.
    unsafe { sys::call(nr::MPROTECT, [at, length, protection]) }
}

fn rewrite_sites(mapping: Mapping, file: &[u8], sites: &[Site]) -> Result<()> {
    let count = sites.len() as u64;
    let Some(slots) = new_slots(count) else { return Ok(()) };
    let near = new_near(mapping, count * NEAR)?;
    let runtime = slot::Runtime { table: OF_INTEREST.as_ptr() as u32, entry: address(&slow_entry) as u32 };
    // The place that an instruction names may lie before the mapping.
    let place = |offset: u64| mapping.address.wrapping_add(offset.wrapping_sub(mapping.offset));
    for (index, site) in sites.iter().enumerate() {
        let offset = index as u64 * slot::SIZE as u64;
        let copied = &file[site.start as usize..site.call as usize];
        let mut code = slot::encode(slots.at + offset, runtime, copied, place(site.start));
        if let Some(Relative { at, target }) = site.relative {
            code = slot::with_named(code, (at - site.start) as usize, place(target));
        }
        slots.write(offset, &code);
        near.write(index as u64 * NEAR, &slot::far_jump(slots.at + offset));
    }
    slots.seal()?;
    near.seal()?;
    let (first, end) = (page_start(mapping.address), page_end(mapping.address + mapping.length));
    protect(first, end - first, PROT_READ | PROT_WRITE)?;
    for (index, site) in sites.iter().enumerate() {
        if is_as_in_file(site, place, file) {
            divert(site, place, near.at + index as u64 * NEAR);
        }
    }
    if protect(first, end - first, mapping.protection).is_err() {
        // Some systems forbid executing what was written. The file's own code is as good.
        let Mapping { length, protection, file, offset, .. } = mapping;
        // SAFETY: the code is not executed yet.
        unsafe { sys::mmap(first, length, protection, MAP_PRIVATE | MAP_FIXED, file, offset)? };
    }
    Ok(())
}

/// Returns whether a site's code is the file's, and its hole, too. A program may have changed them, and
/// another site may have taken the hole.
fn is_as_in_file(site: &Site, place: impl Fn(u64) -> u64, file: &[u8]) -> bool {
    let is_same = |from: u64, end: u64| {
        let mut code = [0; MAX_COPIED + 2];
        let bytes = &file[from as usize..end as usize];
        let code = &mut code[..bytes.len()];
        user::read(place(from), code).is_ok() && code == bytes
    };
    is_same(site.start, site.call + 2) && site.hole.is_none_or(|hole| is_same(hole, hole + JUMP))
}

/// Writes a site's jumps. Where `place` says, the code is writable.
fn divert(site: &Site, place: impl Fn(u64) -> u64, near: u64) {
    let write = |offset: u64, bytes: &[u8]| {
        // SAFETY: the site lies in the mapping, which is writable and not executed.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), place(offset) as *mut u8, bytes.len()) };
    };
    let at = site.hole.unwrap_or(site.start);
    let Some(jump) = slot::near_jump(place(at), near) else { return };
    if let Some(hole) = site.hole {
        let Some(short) = slot::short_jump(site.call, hole) else { return };
        write(hole, &jump);
        write(site.call, &short);
        return;
    }
    write(site.start, &jump);
    for offset in site.start + jump.len() as u64..site.start + site.overwritten {
        write(offset, &[0xcc]);
    }
}

/// Maps pages for slots. The next ones begin on a page of their own, so that sealed ones are never written.
fn new_slots(count: u64) -> Option<Pages> {
    let length = page_end(count * slot::SIZE as u64);
    let at = NEXT_SLOT.load(Ordering::Relaxed);
    if length > RUNTIME_BASE - at {
        return None;
    }
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    // SAFETY: these addresses are reserved for slots, and from here on nothing was mapped.
    unsafe { sys::mmap(at, length, PROT_READ | PROT_WRITE, flags, NO_FILE, 0).ok()? };
    NEXT_SLOT.store(at + length, Ordering::Relaxed);
    Some(Pages { at, length })
}

/// Maps pages that a jump from everywhere in a mapping reaches: below it, or else above.
fn new_near(mapping: Mapping, length: u64) -> Result<Pages> {
    const STEP: u64 = 16 << 20;
    const STEPS: u64 = 64;
    let length = page_end(length);
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
    let start = page_start(mapping.address);
    let end = page_end(mapping.address + mapping.length);
    let below = (1..STEPS).filter_map(|step| start.checked_sub(step * STEP)).filter(|at| *at >= STEP);
    let above = (1..STEPS).map(|step| end + step * STEP);
    let mut last = Err(abi::Errno::ENOMEM);
    for at in below.chain(above) {
        // SAFETY: nothing is replaced.
        last = unsafe { sys::mmap(at, length, PROT_READ | PROT_WRITE, flags, NO_FILE, 0) };
        match last {
            Ok(found) if found == at && (Pages { at, length }).record() => return Ok(Pages { at, length }),
            // SAFETY: the memory is new. A kernel that does not know the flag chose another address, or these
            // are taken in the record.
            Ok(found) => unsafe { sys::munmap(found, length) },
            Err(_) => {}
        }
    }
    last.and(Err(abi::Errno::ENOMEM))
}

/// Reserves the addresses of slots.
pub fn reserve() {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE | sys::MAP_NORESERVE;
    let length = RUNTIME_BASE - SLOTS_BASE;
    // SAFETY: nothing is replaced.
    let at = unsafe { sys::mmap(SLOTS_BASE, length, 0, flags, NO_FILE, 0) };
    if at != Ok(SLOTS_BASE) {
        // Without slots every call is dispatched by the kernel.
        NEXT_SLOT.store(RUNTIME_BASE, Ordering::Relaxed);
    }
}

const _: () = assert!(SLOTS_BASE.is_multiple_of(PAGE) && RUNTIME_BASE.is_multiple_of(PAGE));
